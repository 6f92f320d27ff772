#include "worker/ops/elementwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/ops/elementwise.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "worker/ops/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace cairn {
namespace HWY_NAMESPACE {

void AxpyKernel(float alpha, const float* x, float* y, size_t count) {
  ForLanes(count, [&](auto d, size_t i) HWY_ATTR {
    hn::StoreU(hn::MulAdd(hn::Set(d, alpha), hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, y + i);
  });
}

// Unlike Max, which for NaN returns either operand, depending on the instruction set, this keeps
// NaN.
template <class D, class V>
HWY_INLINE V Relu(D d, V x) {
  return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Zero(d), x);
}

void ReluKernel(float* x, size_t count) {
  ForLanes(count,
           [&](auto d, size_t i) HWY_ATTR { hn::StoreU(Relu(d, hn::LoadU(d, x + i)), d, x + i); });
}

void ReluBackwardKernel(const float* y, float* d_y, size_t count) {
  ForLanes(count, [&](auto d, size_t i) HWY_ATTR {
    const auto active = hn::Gt(hn::LoadU(d, y + i), hn::Zero(d));
    hn::StoreU(hn::IfThenElseZero(active, hn::LoadU(d, d_y + i)), d, d_y + i);
  });
}

void AddToRowsKernel(const float* row, size_t rows, size_t width, bool relu, float* y) {
  if (width == 1) {  // one number added to all: treat as a single row
    ForLanes(rows, [&](auto d, size_t i) HWY_ATTR {
      const auto sum = hn::Add(hn::LoadU(d, y + i), hn::Set(d, row[0]));
      hn::StoreU(relu ? Relu(d, sum) : sum, d, y + i);
    });
    return;
  }
  for (size_t r = 0; r < rows; ++r, y += width) {
    if (relu) {
      ForLanes(width, [&](auto d, size_t i) HWY_ATTR {
        const auto sum = hn::Add(hn::LoadU(d, y + i), hn::LoadU(d, row + i));
        hn::StoreU(Relu(d, sum), d, y + i);
      });
    } else {
      ForLanes(width, [&](auto d, size_t i) HWY_ATTR {
        hn::StoreU(hn::Add(hn::LoadU(d, y + i), hn::LoadU(d, row + i)), d, y + i);
      });
    }
  }
}

// Two accumulators for each column hide the latency of the addition.
void SumRowsKernel(const float* x, size_t rows, size_t width, float* sum) {
  if (width == 1) {
    *sum = SumLanes(rows, [&](auto d, size_t i) HWY_ATTR { return hn::LoadU(d, x + i); });
    return;
  }
  ForLanes(width, [&](auto d, size_t i) HWY_ATTR {
    auto even = hn::Zero(d);
    auto odd = hn::Zero(d);
    const float* at = x + i;
    size_t r = 0;
    for (; r + 2 <= rows; r += 2, at += 2 * width) {
      even = hn::Add(even, hn::LoadU(d, at));
      odd = hn::Add(odd, hn::LoadU(d, at + width));
    }
    if (r < rows) even = hn::Add(even, hn::LoadU(d, at));
    hn::StoreU(hn::Add(even, odd), d, sum + i);
  });
}

void OuterProductKernel(const float* scale, size_t rows, const float* row, size_t width, float* out,
                        size_t out_stride) {
  for (size_t r = 0; r < rows; ++r, out += out_stride) {
    ForLanes(width, [&](auto d, size_t i) HWY_ATTR {
      hn::StoreU(hn::Mul(hn::Set(d, scale[r]), hn::LoadU(d, row + i)), d, out + i);
    });
  }
}

// exp(-|x|) never overflows; both branches divide by the same 1 + exp(-|x|).
void SigmoidKernel(const float* x, float* out, size_t count) {
  ForLanes(count, [&](auto d, size_t i) HWY_ATTR {
    const auto value = hn::LoadU(d, x + i);
    const auto decay = hn::Exp(d, hn::Neg(hn::Abs(value)));
    const auto one = hn::Set(d, 1.0f);
    const auto numerator = hn::IfThenElse(hn::Lt(value, hn::Zero(d)), decay, one);
    hn::StoreU(hn::Div(numerator, hn::Add(one, decay)), d, out + i);
  });
}

void ExpKernel(const float* x, float* out, size_t count) {
  ForLanes(count, [&](auto d, size_t i)
                      HWY_ATTR { hn::StoreU(hn::Exp(d, hn::LoadU(d, x + i)), d, out + i); });
}

}  // namespace HWY_NAMESPACE
}  // namespace cairn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cairn {

HWY_EXPORT(AxpyKernel);
HWY_EXPORT(ReluKernel);
HWY_EXPORT(ReluBackwardKernel);
HWY_EXPORT(AddToRowsKernel);
HWY_EXPORT(SumRowsKernel);
HWY_EXPORT(OuterProductKernel);
HWY_EXPORT(SigmoidKernel);
HWY_EXPORT(ExpKernel);

void Axpy(float alpha, const float* x, float* y, size_t count) {
  HWY_DYNAMIC_DISPATCH(AxpyKernel)(alpha, x, y, count);
}

void Relu(float* x, size_t count) { HWY_DYNAMIC_DISPATCH(ReluKernel)(x, count); }

void ReluBackward(const float* y, float* d_y, size_t count) {
  HWY_DYNAMIC_DISPATCH(ReluBackwardKernel)(y, d_y, count);
}

void AddToRows(const float* row, size_t rows, size_t width, bool relu, float* y) {
  HWY_DYNAMIC_DISPATCH(AddToRowsKernel)(row, rows, width, relu, y);
}

void SumRows(const float* x, size_t rows, size_t width, float* sum) {
  HWY_DYNAMIC_DISPATCH(SumRowsKernel)(x, rows, width, sum);
}

void OuterProduct(const float* scale, size_t rows, const float* row, size_t width, float* out,
                  size_t out_stride) {
  HWY_DYNAMIC_DISPATCH(OuterProductKernel)(scale, rows, row, width, out, out_stride);
}

void Sigmoid(const float* x, float* out, size_t count) {
  HWY_DYNAMIC_DISPATCH(SigmoidKernel)(x, out, count);
}

void Exp(const float* x, float* out, size_t count) {
  HWY_DYNAMIC_DISPATCH(ExpKernel)(x, out, count);
}

}  // namespace cairn
#endif  // HWY_ONCE
