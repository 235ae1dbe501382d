"""The weights of a Transformer block as the reference and torch take them."""

from helpers import to_numpy


def float64(layer):
    return [to_numpy(w).astype("float64") for w in layer.weights]


def norms(layer):
    found = (layer.input_norm, layer.output_norm)
    return [float64(norm) for norm in found if norm is not None]


def torch_weights(block, twin):
    """Moves the weights; variable path -> a function that gets torch's gradient."""
    import torch

    found = {}

    def move(variables, parameters, rows=slice(None)):
        for variable, parameter in zip(variables, parameters, strict=True):
            value = to_numpy(variable)
            # W of torch is (outputs, inputs), x W^T
            turned = value.ndim > 1
            width = parameter[rows].shape[0]
            matrix = value.reshape(-1, width).T if turned else value
            with torch.no_grad():
                parameter[rows] = torch.tensor(matrix).reshape(parameter[rows].shape)

            def gradient(parameter=parameter, rows=rows, turned=turned):
                found = parameter.grad[rows]
                return found.T if turned else found

            found[variable.path] = gradient

    def attention(layer, twin):
        packed = twin.in_proj_weight, twin.in_proj_bias
        width = packed[0].shape[1]
        denses = layer.query_dense, layer.key_dense, layer.value_dense
        for i, dense in enumerate(denses):
            kernel, bias = dense.weights
            rows = slice(i * width, (i + 1) * width)
            move([kernel], packed[:1], rows)
            with torch.no_grad():
                packed[1][rows] = torch.tensor(to_numpy(bias).ravel())
            found[bias.path] = lambda rows=rows: packed[1].grad[rows]
        move(layer.output_dense.weights, [twin.out_proj.weight, twin.out_proj.bias])

    attention(block.mixer, twin.self_attn)
    connections = [block.mixer_connection, block.feed_forward_connection]
    if hasattr(twin, "multihead_attn"):
        attention(block.cross_attention, twin.multihead_attn)
        connections.insert(1, block.cross_connection)
    for i, layer in enumerate(connections):
        norm = getattr(twin, f"norm{i + 1}")
        move(layer.weights, [norm.weight, norm.bias])
    dense = [twin.linear1.weight, twin.linear1.bias]
    move(block.feed_forward.weights, [*dense, twin.linear2.weight, twin.linear2.bias])
    return found
