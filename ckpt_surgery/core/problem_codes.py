"""The codes of problems, which stay the same when messages are worded anew.

docs/problems.md says what each means.
"""

from enum import StrEnum


class Code(StrEnum):
    """Kinds of problems. A code is never given to another kind, and never taken away."""

    # The text of a recipe.
    UNREADABLE = "CS001"
    YAML = "CS002"
    YAML_FEATURE = "CS003"
    UNCLEAR_VALUE = "CS004"
    REPEATED_FIELD = "CS005"

    # Its fields.
    UNKNOWN_FIELD = "CS010"
    MISSING_FIELD = "CS011"
    WRONG_VALUE = "CS012"
    FIELDS_DISAGREE = "CS013"
    NAME = "CS014"
    UNKNOWN_SOURCE = "CS015"
    MIRROR = "CS016"
    SHARDING = "CS017"

    # Its patterns, templates and expressions.
    PATTERN = "CS020"
    SLOW_PATTERN = "CS021"
    INSERTED_PARAM = "CS022"
    TEMPLATE = "CS023"
    EXPRESSION = "CS024"
    UNKNOWN_NAME = "CS025"
    UNKNOWN_FUNCTION = "CS026"
    CALL = "CS027"
    ARGUMENTS = "CS028"
    NO_ENTRY = "CS029"
    NO_GROUP = "CS030"
    PARAM = "CS031"
    HOOKS = "CS032"

    # A recipe and a checkpoint.
    CLAIMS_NOTHING = "CS040"
    UNCLAIMED = "CS041"
    NOTHING_LEFT = "CS042"
    SAME_KEY = "CS043"
    LEAF_AND_CONTAINER = "CS044"
    ORDER = "CS045"
    NOT_AN_ARRAY = "CS046"
    SOURCE_UNUSED = "CS047"

    # A target.
    NO_TARGET = "CS050"
    TARGET_MISSING = "CS051"
    TARGET_MISFIT = "CS052"
    TARGET_EXTRA = "CS053"

    # A destination, and limits.
    UNSUITED = "CS060"
    BUDGET = "CS061"
    TOO_MUCH = "CS062"
    CHANGED = "CS063"

    # Whatever else ends a command.
    USAGE = "CS070"
    SOURCE = "CS071"
    DATA = "CS072"
    NO_MEMORY = "CS073"
    VERIFICATION = "CS074"
    DESTINATION = "CS075"
    STORAGE = "CS076"
    INTERRUPTED = "CS077"
    INTERNAL = "CS078"
