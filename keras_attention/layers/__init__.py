"""The layers."""

from keras_attention.layers.bahdanau import BahdanauAttention
from keras_attention.layers.bidaf import BiDAFAttentionFlow
from keras_attention.layers.coverage import CoverageAttention
from keras_attention.layers.dynamic_convolution import DynamicConvolutionAttention
from keras_attention.layers.forward import ForwardAttention
from keras_attention.layers.gmm import GMMAttention
from keras_attention.layers.hierarchical import HierarchicalAttention
from keras_attention.layers.location_sensitive import LocationSensitiveAttention
from keras_attention.layers.luong import LuongAttention
from keras_attention.layers.memory_hop import MemoryHop
from keras_attention.layers.memory_network import MemoryNetwork
from keras_attention.layers.monotonic import MonotonicAttention
from keras_attention.layers.multi_head import MultiHead
from keras_attention.layers.multi_source import MultiSource
from keras_attention.layers.pooling import AttentionPooling
from keras_attention.layers.retain import RETAIN
from keras_attention.layers.stepwise_monotonic import StepwiseMonotonicAttention
from keras_attention.layers.target import TargetAttention

__all__ = ["RETAIN", "AttentionPooling", "BahdanauAttention", "BiDAFAttentionFlow"]
__all__ += ["CoverageAttention", "DynamicConvolutionAttention", "ForwardAttention", "GMMAttention"]
__all__ += ["HierarchicalAttention", "LocationSensitiveAttention", "LuongAttention", "MemoryHop"]
__all__ += ["MemoryNetwork", "MonotonicAttention", "MultiHead", "MultiSource"]
__all__ += ["StepwiseMonotonicAttention", "TargetAttention"]
