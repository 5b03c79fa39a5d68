import pytest


def _state(model):
    """All of a torch model that calling it must leave alone."""
    modules = dict(model.named_modules())
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {
        "modes": {name: module.training for name, module in modules.items()},
        "hooks": {
            name: (len(module._forward_hooks), len(module._forward_pre_hooks))
            for name, module in modules.items()
        },
        "facts": {
            name: (id(t), t.device, t.dtype, t.requires_grad, id(t.grad))
            for name, t in tensors.items()
        },
        "content": {name: t.detach().tolist() for name, t in tensors.items()},
        "grads": {
            name: t.grad.tolist() for name, t in tensors.items() if t.grad is not None
        },
    }


@pytest.fixture
def state():
    """A function of a torch model to its modes, hooks, flags, tensors, gradients."""
    return _state
