"""Turn what transformers, huggingface_hub and safetensors raise into one sentence: what happened, what to do."""

from __future__ import annotations

import json

from huggingface_hub import errors as hub
from safetensors import SafetensorError

from hsd.errors import BadInput, HsdError, IncompatibleModel, ModelUnavailable, NotEnoughMemory
from hsd.generate.faults import ran_out_of_memory
from hsd.pick.source import hub_problem


def explain(name: str, error: Exception) -> HsdError:
    """The project's own error for a failure while fetching or loading `name`."""
    chain = _chain(error)
    text = " ".join(str(link) for link in chain)
    if _any(chain, hub.GatedRepoError) or "gated repo" in text:
        return ModelUnavailable(
            f"{name} is gated: accept its licence on its hub page, then run `hf auth login` (or set HF_TOKEN) and try again."
        )
    if _any(chain, hub.RepositoryNotFoundError) or "is not a valid model identifier" in text:
        return ModelUnavailable(f"{name} does not exist on the hub, or is private; check its spelling, or log in with `hf auth login`.")
    if _any(chain, hub.HFValidationError):
        return BadInput(f"“{name[:80]}” is not a hub id; write owner/name, or give a folder.")
    if "trust_remote_code" in text or "custom code" in text:
        return IncompatibleModel(f"{name} needs its own Python code, which is never run here; choose a model that transformers knows.")
    if any(map(ran_out_of_memory, chain)):
        return NotEnoughMemory(f"There is not enough memory to load {name}; choose a smaller model, a smaller dtype or another device.")
    if _any(chain, SafetensorError):
        return ModelUnavailable(
            f"The weights of {name} are damaged or only half downloaded ({chain[-1]}); delete them and fetch them again."
        )
    if ("does not appear to have a file named" in text and "safetensors" in text) or "safetensors weights" in text:
        return ModelUnavailable(
            f"{name} has no complete safetensors weights (pickled ones are not loaded here); choose another checkpoint."
        )
    if (
        "is not a local folder" in text
        or "couldn't connect" in text.lower()
        or _any(chain, hub.LocalEntryNotFoundError, ConnectionError, TimeoutError)
    ):
        problem = hub_problem() or "the connection failed"
        return ModelUnavailable(f"{name} is not on this machine and {problem}; go online, or choose smollm2-135m or a local folder.")
    if _any(chain, json.JSONDecodeError) or "is not a valid JSON file" in text:
        return ModelUnavailable(f"A configuration file of {name} is damaged; delete it and fetch the model again.")
    if "does not recognize this architecture" in text or "Unrecognized model" in text or "Unrecognized configuration" in text:
        return IncompatibleModel(
            f"{name} has an architecture that the installed transformers does not know; upgrade transformers or choose another."
        )
    if _any(chain, ImportError):
        return ModelUnavailable(f"{name} needs a package that is not installed ({_first_line(chain[0])}); install it and try again.")
    if "does not appear to have a file named" in text or "Error no file named" in text or _any(chain, FileNotFoundError):
        return ModelUnavailable(f"{name} is incomplete ({_first_line(chain[0])}); fetch it again.")
    return ModelUnavailable(
        f"{name} could not be loaded ({type(error).__name__}: {_first_line(error)}); choose another model or fetch it again."
    )


def _chain(error: BaseException) -> list[BaseException]:
    links: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in links:
        links.append(link)
        link = link.__cause__ or link.__context__
    return links


def _any(chain: list[BaseException], *kinds: type[BaseException]) -> bool:
    return any(isinstance(link, kinds) for link in chain)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:200]
