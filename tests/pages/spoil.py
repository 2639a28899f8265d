"""How answers to exercises go wrong, put into a right answer while it runs.

Each of SPOILS takes an answer and a list, and gives another answer, which appends to the list where it is not as good.
"""

import functools

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode


def spoiled(spoil, answer, acted):
    """An answer is a function, or the class of a module, whose `forward` is spoiled."""
    if isinstance(answer, type):
        return type(answer.__name__, (answer,), {"forward": spoil(answer.forward, acted)})
    return spoil(answer, acted)


def tensors(given):
    """The tensors that a call is given, with their places."""
    return [(place, one) for place, one in enumerate(given) if isinstance(one, torch.Tensor)]


# -- what it gives and takes ---------------------------------------------------------------------


def without_gradient(answer, acted):
    def call(*given, **options):
        result = answer(*given, **options)
        if not (isinstance(result, torch.Tensor) and result.requires_grad):
            return result
        acted.append(result)
        return result.detach() + 0 * result

    return call


def role_detached(number, answer, acted):
    def call(*given, **options):
        for place, one in [(place, one) for place, one in tensors(given) if one.requires_grad][number : number + 1]:
            acted.append(one)
            given = *given[:place], one.detach(), *given[place + 1 :]
        return answer(*given, **options)

    return call


def input_changed(number, answer, acted):
    def call(*given, **options):
        result = answer(*given, **options)
        for _, one in [(place, one) for place, one in tensors(given) if not one.is_meta][number : number + 1]:
            acted.append(one)
            one.data.copy_(~one if one.dtype == torch.bool else one + 1)
        return result

    return call


def size_of(one):
    if isinstance(one, dict):
        return {name: size_of(part) for name, part in one.items()}
    return one.shape if isinstance(one, torch.Tensor) else one


def first_size_only(answer, acted):
    def call(*given, **options):
        sizes = [size_of(one) for one in given if not isinstance(one, str)]
        if not call.first:
            call.first = sizes, answer(*given, **options)
        if sizes == call.first[0]:
            return answer(*given, **options)
        acted.append(sizes)
        return call.first[1]

    call.first = None
    return call


# -- which calls of torch it makes ---------------------------------------------------------------


def other_calls(replace, answer, acted):
    """`replace(function, args, kwargs)` gives another result than a call of torch would, or None."""

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            other = replace(function, args, kwargs or {})
            if other is None:
                return function(*args, **(kwargs or {}))
            acted.append(function)
            return other

    def call(*given, **options):
        with Mode():
            return answer(*given, **options)

    return call


def attention(
    queries, keys, values, attn_mask=None, is_causal=False, scale=None, fill=-torch.inf, softmax=torch.softmax
):
    """What SDPA computes, with the softmax and the number for what is hidden that are wanted."""
    scores = queries @ keys.mT * (queries.shape[-1] ** -0.5 if scale is None else scale)
    visible = torch.ones_like(scores, dtype=torch.bool).tril() if is_causal else attn_mask
    if visible is not None:
        scores = scores.masked_fill(~visible, fill)
    return softmax(scores, dim=-1) @ values


def exponentials(scores, dim):
    return scores.exp() / scores.exp().sum(dim=dim, keepdim=True)


def overflowing(function, args, kwargs):
    if function in (torch.softmax, torch.Tensor.softmax):
        return exponentials(*args, **kwargs)
    if function in (torch.amax, torch.Tensor.amax):
        return torch.zeros_like(function(*args, **kwargs))
    return attention(*args, **kwargs, softmax=exponentials) if function is F.scaled_dot_product_attention else None


def filled(fill, function, args, kwargs):
    if function is F.scaled_dot_product_attention:
        return attention(*args, **kwargs, fill=fill)
    infinite = [isinstance(one, float) and one == -torch.inf for one in args]
    return function(*(fill if it else one for it, one in zip(infinite, args)), **kwargs) if any(infinite) else None


def without_device(function, args, kwargs):
    if kwargs.get("device") is None or torch.device(kwargs["device"]) == torch.get_default_device():
        return None
    return function(*args, **{name: value for name, value in kwargs.items() if name != "device"})


SPOILS = {
    "without a gradient": without_gradient,
    **{f"role {number} detached": functools.partial(role_detached, number) for number in range(3)},
    **{f"input {number} changed": functools.partial(input_changed, number) for number in range(4)},
    "right for the first size": first_size_only,
    "exponentials that overflow": functools.partial(other_calls, overflowing),
    **{f"hidden by {fill}": functools.partial(other_calls, functools.partial(filled, fill)) for fill in (-20.0, -1e4)},
    "no device=": functools.partial(other_calls, without_device),
}
