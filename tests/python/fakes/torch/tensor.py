"""Strided tensors of Python numbers over ctypes arrays: slow, small, and with real addresses."""

from __future__ import annotations

import ctypes
import itertools
import math
import random

float16, bfloat16 = "f16", "bf16"
float32, float64, int32, uint8 = ctypes.c_float, ctypes.c_double, ctypes.c_int32, ctypes.c_uint8


def _dense(shape):
    strides, step = [], 1
    for extent in reversed(shape):
        strides.insert(0, step)
        step *= extent
    return tuple(strides)


class Tensor:
    device = "cuda:0"

    def __init__(self, storage, dtype, offset, shape, strides):
        self.storage, self.dtype, self.offset = storage, dtype, offset
        self.shape, self.strides = tuple(shape), tuple(strides)

    @classmethod
    def contiguous_of(cls, shape, dtype):
        return cls((dtype * max(1, math.prod(shape)))(), dtype, 0, shape, _dense(shape))

    # -- elements

    def _places(self):
        for index in itertools.product(*(range(extent) for extent in self.shape)):
            yield self.offset + sum(i * s for i, s in zip(index, self.strides, strict=True))

    def values(self):
        return [self.storage[place] for place in self._places()]

    def fill(self, values):
        for place, value in zip(self._places(), values, strict=True):
            self.storage[place] = value
        return self

    def fill_(self, value):
        return self.fill([value] * math.prod(self.shape))

    def item(self):
        (value,) = self.values()
        return value

    def data_ptr(self):
        return ctypes.addressof(self.storage) + self.offset * ctypes.sizeof(self.dtype)

    def element_size(self):
        return ctypes.sizeof(self.dtype)

    def normal_(self, generator):
        draw = random.Random(generator.seed)
        return self.fill(draw.gauss(0, 1) for _ in range(math.prod(self.shape)))

    # -- shapes

    def stride(self, dimension):
        return self.strides[dimension]

    def view(self, *shape):
        shape = shape[0] if isinstance(shape[0], tuple) else shape
        rest = math.prod(self.shape) // math.prod(extent for extent in shape if extent != -1)
        shape = tuple(rest if extent == -1 else extent for extent in shape)
        return Tensor(self.storage, self.dtype, self.offset, shape, _dense(shape))

    def transpose(self, a, b):
        order = list(range(len(self.shape)))
        order[a], order[b] = order[b], order[a]
        shape, strides = [self.shape[i] for i in order], [self.strides[i] for i in order]
        return Tensor(self.storage, self.dtype, self.offset, shape, strides)

    def contiguous(self):
        return Tensor.contiguous_of(self.shape, self.dtype).fill(self.values())

    def flatten(self, first, last):
        assert (first, last) == (0, 1) and self.strides == _dense(self.shape)
        return self.view((self.shape[0] * self.shape[1], *self.shape[2:]))

    def t(self):
        return self.transpose(0, 1)

    def unsqueeze(self, at):
        shape, strides = list(self.shape), list(self.strides)
        shape.insert(at, 1)
        strides.insert(at, 0)
        return Tensor(self.storage, self.dtype, self.offset, shape, strides)

    def __getitem__(self, keys):
        keys = keys if isinstance(keys, tuple) else (keys,)
        offset, shape, strides = self.offset, [], []
        for dimension, extent in enumerate(self.shape):
            key = keys[dimension] if dimension < len(keys) else slice(None)
            if isinstance(key, slice):
                begin, end, _ = key.indices(extent)
                offset += begin * self.strides[dimension]
                shape.append(end - begin)
                strides.append(self.strides[dimension])
            else:
                offset += key * self.strides[dimension]
        return Tensor(self.storage, self.dtype, offset, shape, strides)

    def __setitem__(self, keys, other):
        self[keys].fill(other.values())

    # -- arithmetic, all of it in double

    def _map(self, function):
        return Tensor.contiguous_of(self.shape, float64).fill([function(value) for value in self.values()])

    def _with(self, other, function):
        if not isinstance(other, Tensor):
            return self._map(lambda value: function(value, other))
        shape = [max(pair) for pair in zip(self.shape, other.shape, strict=True)]
        left, right = self._broadcast(shape), other._broadcast(shape)
        pairs = zip(left.values(), right.values(), strict=True)
        return Tensor.contiguous_of(shape, float64).fill([function(a, b) for a, b in pairs])

    def _broadcast(self, shape):
        strides = [0 if have == 1 else stride for have, stride in zip(self.shape, self.strides, strict=True)]
        return Tensor(self.storage, self.dtype, self.offset, shape, strides)

    def to(self, dtype):
        return Tensor.contiguous_of(self.shape, dtype).fill(self.values())

    def double(self):
        return self.to(float64)

    def float(self):
        return self.to(float32)

    def __mul__(self, other):
        return self._with(other, lambda a, b: a * b)

    def __sub__(self, other):
        return self._with(other, lambda a, b: a - b)

    def __add__(self, other):
        return self._with(other, lambda a, b: a + b)

    def __truediv__(self, other):
        return self._with(other, lambda a, b: a / b)

    def __gt__(self, other):
        return self._with(other, lambda a, b: a > b)

    def __le__(self, other):
        return self._with(other, lambda a, b: a <= b)

    def __eq__(self, other):
        return self._with(other, lambda a, b: a == b)

    __hash__ = None

    def exp(self):
        return self._map(math.exp)

    def exp2(self):
        return self._map(lambda value: 2.0**value)

    def log2(self):
        return self._map(math.log2)

    def floor(self):
        return self._map(math.floor)

    def abs(self):
        return self._map(abs)

    def square(self):
        return self._map(lambda value: value * value)

    def clamp(self, min):
        return self._map(lambda value: max(value, min))

    def nan_to_num(self, replacement):
        return self._map(lambda value: replacement if math.isnan(value) else value)

    def masked_fill(self, mask, value):
        return self._with(mask, lambda have, hide: value if hide else have)

    def masked_fill_(self, mask, value):
        return self.fill(self.masked_fill(mask, value).values())

    def matmul(self, other):
        rows, columns = self.shape[0], other.shape[1]
        a, b = self.values(), other.t().values()
        inner = self.shape[1]
        result = Tensor.contiguous_of((rows, columns), float64)
        return result.fill(
            math.fsum(a[i * inner + x] * b[j * inner + x] for x in range(inner))
            for i in range(rows)
            for j in range(columns)
        )

    # -- reductions

    def sum(self, dimension=None, keepdim=False):
        if dimension is None:
            return Tensor.contiguous_of((), float64).fill([math.fsum(self.values())])
        assert dimension == -1 and keepdim
        return Tensor.contiguous_of((*self.shape[:-1], 1), float64).fill(math.fsum(row) for row in self._rows())

    def max(self):
        return Tensor.contiguous_of((), float64).fill([max(self.values())])

    def _rows(self):
        values, width = self.values(), self.shape[-1]
        return [values[i : i + width] for i in range(0, len(values), width)]

    def amax(self, dimension, keepdim):
        assert dimension == -1 and keepdim
        return Tensor.contiguous_of((*self.shape[:-1], 1), float64).fill(max(row) for row in self._rows())

    def logsumexp(self, dimension):
        assert dimension == len(self.shape) - 1

        def of(row):
            total = math.fsum(math.exp(value) for value in row)
            return math.log(total) if total > 0 else -math.inf

        return Tensor.contiguous_of(self.shape[:-1], float64).fill(of(row) for row in self._rows())
