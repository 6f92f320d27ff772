// Sparse products equal the dense products of the same matrix, for every width, including empty
// rows and repeated columns.
#include "worker/ops/sparse.h"

#include <vector>

#include "gtest/gtest.h"
#include "tests/worker/ops/random_values.h"

namespace cairn {
namespace {

constexpr size_t kColumns = 6;
const std::vector<int64_t> kOffsets = {0, 3, 3, 5, 9};
const std::vector<int32_t> kEntries = {0, 2, 5, 1, 1, 0, 3, 4, 5};
const std::vector<float> kValues = {1, -2, 0.5f, 3, 0.25f, 1, 1, -1, 2};

CsrView View() {
  return {.rows = 4,
          .row_offsets = kOffsets.data(),
          .columns = kEntries.data(),
          .values = kValues.data()};
}

TEST(Sparse, ToDenseAddsRepeatedColumns) {
  std::vector<float> x(4 * kColumns, 9.0f);
  SparseToDense(View(), kColumns, x.data());
  EXPECT_EQ(x, (std::vector<float>{1, 0,     -2, 0, 0,  0.5f,  //
                                   0, 0,     0,  0, 0,  0,     //
                                   0, 3.25f, 0,  0, 0,  0,     //
                                   1, 0,     0,  1, -1, 2}));
}

TEST(Sparse, ProductsEqualTheDenseOnes) {
  std::vector<float> x(4 * kColumns);
  SparseToDense(View(), kColumns, x.data());
  for (size_t width = 1; width <= 80; ++width) {
    const std::vector<float> w = UniformValues(kColumns * width, 1),
                             d_y = UniformValues(4 * width, 2);
    std::vector<float> y(4 * width, 9.0f), d_w(kColumns * width, 9.0f);
    SparseTimesDense(View(), w.data(), width, y.data());
    SparseTransposedTimesDense(View(), d_y.data(), width, kColumns, d_w.data());
    for (size_t c = 0; c < width; ++c) {
      for (size_t r = 0; r < 4; ++r) {
        double want = 0;
        for (size_t k = 0; k < kColumns; ++k) want += x[r * kColumns + k] * w[k * width + c];
        EXPECT_NEAR(y[r * width + c], want, 1e-5) << "width " << width;
      }
      for (size_t k = 0; k < kColumns; ++k) {
        double want = 0;
        for (size_t r = 0; r < 4; ++r) want += x[r * kColumns + k] * d_y[r * width + c];
        EXPECT_NEAR(d_w[k * width + c], want, 1e-5) << "width " << width;
      }
    }
  }
}

}  // namespace
}  // namespace cairn
