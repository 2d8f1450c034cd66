"""From a parsed document to a checked model: pydantic's errors in the words of the person who wrote the file.

Numbers and switches are strict (`"8"` is no number, `no` no switch). The first error by place is raised and
says how many more there are. Checks across fields raise `FieldError`, which names the field to change.
"""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from experiments.document import Document, Loc, Place
from experiments.errors import InputError
from experiments.scalar import shown

Model = TypeVar("Model", bound=BaseModel)

# Strict where pydantic would read one kind for another; lists, texts and choices it takes as they are.
Int = Annotated[int, Field(strict=True)]
Real = Annotated[float, Field(strict=True)]  # whole numbers are real ones too
Switch = Annotated[bool, Field(strict=True)]


def one_line(text: str) -> str:
    """Text that is safe in an argument list, a log line and a table cell."""
    if not text or not text.isprintable():
        raise ValueError("must be printable text on one line")
    return text


Line = Annotated[str, AfterValidator(one_line)]


class Strict(BaseModel):
    """A part of a file that a person writes: frozen, no unknown keys, no infinite or undefined numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class FieldError(ValueError):
    """A rule across fields is broken. `loc` is the field to change, relative to the model that checks it;
    with `at_key` it is the name of the field that is wrong, not its value."""

    def __init__(self, loc: Loc, message: str, *, at_key: bool = False) -> None:
        self.loc, self.at_key = loc, at_key
        super().__init__(message)


def validate(document: Document, model: type[Model]) -> Model:
    """The document as `model`, or the first thing that is wrong with it, as an `InputError`."""
    try:
        return model.model_validate(document.data)
    except ValidationError as error:
        raise _first_error(document, model, error) from None


@dataclass(frozen=True, kw_only=True, order=True)
class _Problem:
    place: Place
    message: str


def _first_error(document: Document, model: type[BaseModel], error: ValidationError) -> InputError:
    """One value that fits none of several kinds is one error, however many kinds were tried."""
    found = error.errors(include_url=False)
    meant = {(*d["loc"][:-1], _closest(model, d["loc"])) for d in found if d["type"] == "extra_forbidden"}
    by_part: dict[tuple[Loc, bool], list[ErrorDetails]] = {}
    for details in found:
        if details["type"] == "missing" and details["loc"] in meant:
            continue  # the misspelt key is the error
        is_key = details["type"] in ("missing", "extra_forbidden")
        loc = details["loc"] if is_key else document.existing(_full_loc(details))
        by_part.setdefault((loc, is_key), []).append(details)
    problems = sorted(_problem(document, model, group) for group in by_part.values())
    more = len(problems) - 1
    suffix = f" (and {more} more error{'s' if more > 1 else ''})" if more else ""
    return document.error(problems[0].place, problems[0].message + suffix)


def _full_loc(details: ErrorDetails) -> Loc:
    raised = details.get("ctx", {}).get("error")
    return details["loc"] + (raised.loc if isinstance(raised, FieldError) else ())


def _problem(document: Document, model: type[BaseModel], group: list[ErrorDetails]) -> _Problem:
    # Of all that a union tried, a broken rule says more than a wrong kind.
    details = next((d for d in group if d["type"] == "value_error"), group[0])
    loc, message = _full_loc(details), _message(model, details)
    match details["type"]:
        case "extra_forbidden":
            return _Problem(place=document.place_of_key(loc), message=message)
        case "missing":
            return _Problem(place=document.place_of_key(loc[:-1]), message=message)
        case _:
            if len(group) > 1 and details["type"] != "value_error":
                message = _none_of(group) or message
            raised = details.get("ctx", {}).get("error")
            at_key = isinstance(raised, FieldError) and raised.at_key
            place = document.place_of_key(loc) if at_key else document.place_of_value(loc)
            field = dotted(document.existing(loc))
            return _Problem(place=place, message=f"{field}: {message}" if field else message)


def _none_of(group: list[ErrorDetails]) -> str | None:
    """One sentence for a value that is of none of the kinds that a union allows."""
    if any(d["type"] == "finite_number" for d in group):
        return f"{_WORDS['finite_number']} (got {shown(group[0]['input'])})"
    kinds = [_WORDS[d["type"]] for d in group if d["type"] in _KIND_ERRORS]
    if len(kinds) < len(group):
        return None
    names = list(dict.fromkeys(kind.removeprefix("must be ") for kind in kinds))
    if "a number" in names:
        names = [name for name in names if name != "a whole number"]
    wanted = f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else names[0]
    return f"must be {wanted} (got {shown(group[0]['input'])})"


def dotted(loc: Iterable[str | int]) -> str:
    """`('knobs', 0, 'range')` as `knobs[0].range`."""
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


# --- words --------------------------------------------------------------------------------------------------

_WORDS = {
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be text in quotes",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "dict_type": "must be a mapping of keys to values",
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
}

_COUNTS = {
    "too_short": "has too few items; at least {min_length}",
    "too_long": "has too many items; at most {max_length}",
}
_KIND_ERRORS = frozenset(kind for kind in _WORDS if kind.endswith("_type"))


def _message(model: type[BaseModel], details: ErrorDetails) -> str:
    context = details.get("ctx", {})
    got = details["input"]
    match details["type"]:
        case "extra_forbidden":
            return _unknown_key(model, details["loc"])
        case "missing":
            return _missing_key(details["loc"])
        case "literal_error" | "enum":
            return _not_a_choice(context["expected"], got)
        case "value_error":
            return str(context["error"])
        case kind if kind in _COUNTS:
            return _COUNTS[kind].format_map(context)
        case "model_type" | "model_attributes_type":
            return f"must be a mapping with keys {', '.join(keys_at(model, details['loc']))} (got {shown(got)})"
        case kind if kind in _WORDS:
            return f"{_WORDS[kind].format_map(_plain(context))} (got {shown(got)})"
        case _:
            return details["msg"]


def _plain(context: Mapping[str, Any]) -> dict[str, Any]:
    """Limits without a needless `.0`."""
    return {k: int(v) if isinstance(v, float) and v.is_integer() else v for k, v in context.items()}


def _unknown_key(model: type[BaseModel], loc: Loc) -> str:
    known = keys_at(model, loc[:-1])
    key = str(loc[-1])
    where = f" in {dotted(loc[:-1])}" if len(loc) > 1 else ""
    return f"unknown key {shown(key)}{where}; {suggestion(key, known)}"


def suggestion(word: str, known: Iterable[str]) -> str:
    """ "did you mean …?" where one is close, else all that is allowed."""
    known = tuple(known)
    close = closest(word, known)
    return f"did you mean {close!r}?" if close else f"allowed: {', '.join(known)}"


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant: one that begins so, else one spelt much alike."""
    known, word = tuple(known), word.lower().replace("-", "_")
    longer = [name for name in known if len(word) > 2 and name.startswith(word)]
    alike = difflib.get_close_matches(word, known, 1, 0.6)
    return next(iter(longer + alike), None)


def _closest(model: type[BaseModel], loc: Loc) -> str | None:
    return closest(str(loc[-1]), keys_at(model, loc[:-1]))


def _missing_key(loc: Loc) -> str:
    where = f" in {dotted(loc[:-1])}" if len(loc) > 1 else ""
    return f"missing key {str(loc[-1])!r}{where}"


def _not_a_choice(expected: str, got: object) -> str:
    choices = expected.replace(" or ", ", ").replace("'", "").split(", ")
    close = closest(got, choices) if isinstance(got, str) else None
    return f"must be {expected} (got {shown(got)})" + (f"; did you mean {close!r}?" if close else "")


# --- the keys that a model allows at a place ----------------------------------------------------------------


def keys_at(model: type[BaseModel], loc: Loc) -> tuple[str, ...]:
    """The keys that are allowed at `loc`; none where it is not a model."""
    annotation: Any = model
    for part in loc:
        annotation = _step(annotation, part)
    return _keys(annotation)


def _keys(annotation: Any) -> tuple[str, ...]:
    found = _model_of(annotation)
    if found is None:
        return ()
    return tuple(found.model_fields)


def _model_of(annotation: Any) -> type[BaseModel] | None:
    if get_origin(annotation) is Annotated:
        return _model_of(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return next((m for m in map(_model_of, get_args(annotation)) if m is not None), None)
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _step(annotation: Any, part: str | int) -> Any:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _step(arguments[0], part)
    if origin in (Union, types.UnionType):
        return next((_step(a, part) for a in arguments if a is not type(None)), None)
    if isinstance(part, int):
        return arguments[0] if origin is tuple else annotation
    if origin in (dict, Mapping):
        return arguments[1]
    found = _model_of(annotation)
    if found is None:
        return annotation
    field = found.model_fields.get(part)
    return field.annotation if field else None
