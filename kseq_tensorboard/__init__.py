"""The dashboard "Sequences" of TensorBoard: attention and gradients over training.

TensorBoard finds it by the entry point in setup.cfg. It imports neither kseq nor
keras, nor a backend: an ImportError in a plugin keeps TensorBoard from starting.
"""
