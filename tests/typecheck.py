"""The checker of annotations while tests run: whole numbers may stand for floats."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
