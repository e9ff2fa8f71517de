"""Of command lines."""

from experiments import (
    alpha_sweep,
    checkpoint_cost,
    demo,
    fuzz,
    hiding,
    kill_and_resume,
    killed,
    launch,
    plan,
    scale,
    soak,
    tables,
    throughput,
    timeline,
    tradeoff,
    train,
)
from experiments.links.hosts import bits_per_second
from experiments.measured import network_case, network_work
from olsgd_jax.bench import __main__ as bench
from olsgd_jax.overlap import __main__ as overlap
from tests.mistakes import run


def command(module, *words):
    return lambda tmp: run(module.main, *words)


def profile_to_a_file(tmp):
    (tmp / "file").touch()
    run(bench.main, "--profile", tmp / "file")


MISTAKES = {
    "`train --epochs 3` without a preset": command(train, "--epochs", 3),
    "`train --preset gpu`": command(train, "--preset", "gpu"),
    "`train --preset cpu --epochs nan`": command(
        train, "--preset", "cpu", "--epochs", "nan"
    ),
    "`train --preset nanogpt_cpu --epochs 3`": command(
        train, "--preset", "nanogpt_cpu", "--epochs", 3
    ),
    "`train --preset cpu --num-workers 0`": command(
        train, "--preset", "cpu", "--num-workers", 0
    ),
    "`train --seed one`": command(train, "--seed", "one"),
    "`train --mapping xmap`": command(train, "--mapping", "xmap"),
    "`train --learning-speed 0.1`": command(train, "--learning-speed", 0.1),
    "`train --reduction fp8`": command(
        train, "--reduction", "fp8", "--cpu-devices", 16
    ),
    "`train --strategy powersgd`": command(
        train, "--strategy", "powersgd", "--cpu-devices", 16
    ),
    "`train --strategy-args pullback`": command(train, "--strategy-args", "pullback"),
    "`train --strategy-args pullback=half`": command(
        train, "--strategy-args", "pullback=half"
    ),
    "`train --reduction low_rank --reduction-args rank=1.5`": command(
        train,
        *("--cpu-devices", 16),  # as the tests have
        *("--reduction", "low_rank"),
        *("--reduction-args", "rank=1.5"),
    ),
    "`train --cpu-devices 0`": command(train, "--cpu-devices", 0),
    "`train --resume --overwrite`": command(train, "--resume", "--overwrite"),
    "`tables --sync-periods 0`": command(tables, "--sync-periods", 0),
    "`tables --seeds 0`": command(tables, "--seeds", 0),
    "`tradeoff --ranks 1.5`": command(tradeoff, "--ranks", 1.5),
    "`alpha_sweep --num-workers -1`": command(alpha_sweep, "--num-workers", -1),
    "`demo --rounds 0`": command(demo, "--rounds", 0),
    "`demo --seed -1`": command(demo, "--seed", -1),
    "`demo --rate fast`": command(demo, "--rate", "fast"),
    "`demo --rate 10gbit`": command(demo, "--rate", "10gbit"),
    "`demo --repetitions 0`": command(demo, "--repetitions", 0),
    "`demo --sync-period 0`": command(demo, "--sync-period", 0),
    "`launch --processes 0 -- true`": command(launch, "--processes", 0, "--", "true"),
    "`launch --processes 2` without a command": command(launch, "--processes", 2),
    "`launch` with a program that does not exist": command(
        launch, "--processes", 2, "--", "no-such-program"
    ),
    "`launch --grace nan`": command(
        launch, "--processes", 1, "--grace", "nan", "--", "true"
    ),
    "`scale --num-workers 0`": command(scale, "--num-workers", 0),
    "`plan --target p100:1x1x8`": command(
        plan, "--target", "p100:1x1x8", "--bandwidth", "10gbit"
    ),
    "`plan --bandwidth fast`": command(
        plan, "--target", "h100:1x1x8", "--bandwidth", "fast"
    ),
    "`overlap --step --stream`": command(overlap, "--step", "--stream"),
    "`overlap --target p100:1x1x8`": command(overlap, "--target", "p100:1x1x8"),
    "`bench --model vgg`": command(bench, "--model", "vgg"),
    "`bench --strategies adam`": command(bench, "--strategies", "adam"),
    "`bench --strategies local_sgd:fast`": command(
        bench, "--strategies", "local_sgd:fast"
    ),
    "`bench --strategies local_sgd:stream`": command(
        bench, "--strategies", "local_sgd:stream"
    ),
    "`bench --reduction int9`": command(bench, "--reduction", "int9"),
    "`bench --sync-period 0`": command(bench, "--sync-period", 0),
    "`bench --workers 1`": command(bench, "--workers", 1),
    "`bench --data 3 --batch-size 4`": command(bench, "--data", 3, "--batch-size", 4),
    "`bench --json no-such-directory/x`": command(
        bench, "--json", "no-such-directory/x"
    ),
    "`bench --profile` with a file instead of a directory": profile_to_a_file,
    "`soak --rounds 1`": command(soak, "--rounds", 1),
    "`hiding --repetitions 0`": command(hiding, "--repetitions", 0),
    "`killed --times 0`": command(killed, "--times", 0),
    "`kill_and_resume --times 0`": command(kill_and_resume, "--times", 0),
    "`checkpoint_cost --repetitions 0`": command(checkpoint_cost, "--repetitions", 0),
    "`throughput --repetitions 0`": command(throughput, "--repetitions", 0),
    "`timeline --rounds 0`": command(timeline, "--rounds", 0),
    "`fuzz --examples 0`": command(fuzz, "--examples", 0),
    "`network --rates 0gbit`": lambda tmp: network_case.list_cases(
        [2], ["0gbit"], ["local_sgd"], [1], (2, 8, 1)
    ),
    "a link rate without a unit": lambda tmp: bits_per_second("200"),
    "`network --repetitions 1`": lambda tmp: network_case.list_cases(
        [2], ["1mbit"], ["local_sgd"], [1], (1, 8, 1)
    ),
    "`network --strategies local_sgd:fast`": lambda tmp: network_work.strategy_of(
        network_work.Work("local_sgd:fast", 1), 2
    ),
}
