// Element-wise loops over float32, vectorized by Highway for the machine at hand.
// Thread safety: functions may be called concurrently if no output overlaps another call's memory.
// No two arguments may overlap unless a comment says so.
#pragma once

#include <cstddef>

namespace cairn {

// y += alpha * x, `count` elements.
void Axpy(float alpha, const float* x, float* y, size_t count);

// x = max(x, 0); keeps NaN.
void Relu(float* x, size_t count);
// d_y = 0 wherever y <= 0, where y is Relu's result.
void ReluBackward(const float* y, float* d_y, size_t count);

// y[r] += row for each of `rows` rows of `width` floats; then Relu if `relu`.
void AddToRows(const float* row, size_t rows, size_t width, bool relu, float* y);
// sum = the sum of `rows` rows of `width`.
void SumRows(const float* x, size_t rows, size_t width, float* sum);
// out[r] = scale[r] * row, out's rows `out_stride` apart.
void OuterProduct(const float* scale, size_t rows, const float* row, size_t width, float* out,
                  size_t out_stride);

// out = 1 / (1 + exp(-x)), accurate for every finite x. `out` may be `x`.
void Sigmoid(const float* x, float* out, size_t count);
// out = exp(x) for x <= 88; below the smallest normal number 0. `out` may be `x`.
void Exp(const float* x, float* out, size_t count);

}  // namespace cairn
