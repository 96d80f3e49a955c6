"""The families that come in and go out, in the order in which an export tries them."""

from headstart.errors import UserError
from headstart.interop.bert import Bert
from headstart.interop.distilbert import DistilBert
from headstart.interop.families import Family
from headstart.interop.fields import Fields
from headstart.interop.gpt2 import Gpt2
from headstart.interop.gpt_neox import GptNeoX
from headstart.interop.llama import Llama, Mistral
from headstart.interop.marian import Marian
from headstart.interop.roberta import Camembert, Roberta, XlmRoberta

# A base without segments is a RoBERTa rather than a BERT; what is left to BERT has segments or another head.
FAMILIES: tuple[Family, ...] = (
    Roberta(), DistilBert(), Bert(), Gpt2(), Llama(), GptNeoX(), Marian(), Camembert(), XlmRoberta(), Mistral(),
)  # fmt: skip
NAMES: tuple[str, ...] = tuple(family.model_types[0] for family in FAMILIES)


def family_of(fields: Fields) -> Family:
    """The family that a config.json says it is of."""
    model_type = fields.text("model_type")
    for family in FAMILIES:
        if model_type in family.model_types:
            return family
    raise UserError(
        f"model_type is {model_type!r}, a family that Headstart does not have",
        where=fields.where,
        fix=f"these can be imported: {', '.join(NAMES)}",
    )
