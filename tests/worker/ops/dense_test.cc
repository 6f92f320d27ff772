// The layer equals plain triple loops in double, for shapes on the matrix-vector path and others,
// and does not touch memory beyond the requested columns.
#include "worker/ops/dense.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <new>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/worker/ops/random_values.h"

namespace cairn {
namespace {

struct Case {
  DenseShape shape;
  std::vector<float> x, w, b, d_y;
};

Case Make(int64_t rows, int64_t inputs, int64_t outputs, int64_t stride) {
  Case c{.shape = {rows, inputs, outputs, stride}};
  c.x = UniformValues(static_cast<size_t>(rows * stride), 1);
  c.w = UniformValues(static_cast<size_t>(inputs * outputs), 2);
  c.b = UniformValues(static_cast<size_t>(outputs), 3);
  c.d_y = UniformValues(static_cast<size_t>(rows * outputs), 4);
  return c;
}

std::vector<Case> Cases() {
  return {Make(1, 1, 1, 1),     Make(5, 7, 1, 9),      Make(5, 7, 3, 7),
          Make(33, 20, 17, 32), Make(2, 130, 64, 136), Make(64, 3, 10, 3)};
}

TEST(Dense, ForwardEqualsTheFormula) {
  for (const Case& c : Cases()) {
    const DenseShape& s = c.shape;
    for (const bool relu : {false, true}) {
      std::vector<float> y(c.d_y.size(), 5.0f);
      DenseForward(s, c.x.data(), c.w.data(), c.b.data(), relu, y.data());
      for (int64_t r = 0; r < s.rows; ++r) {
        for (int64_t o = 0; o < s.outputs; ++o) {
          double want = c.b[static_cast<size_t>(o)];
          for (int64_t i = 0; i < s.inputs; ++i) {
            want += static_cast<double>(c.x[static_cast<size_t>(r * s.x_stride + i)]) *
                    c.w[static_cast<size_t>(i * s.outputs + o)];
          }
          if (relu) want = std::max(want, 0.0);
          EXPECT_NEAR(y[static_cast<size_t>(r * s.outputs + o)], want, 1e-5);
        }
      }
    }
  }
}

TEST(Dense, BackwardEqualsTheFormulas) {
  for (const Case& c : Cases()) {
    const DenseShape& s = c.shape;
    std::vector<float> d_w(c.w.size(), 5.0f), d_b(c.b.size(), 5.0f);
    DenseBackward(s, c.x.data(), c.w.data(), c.d_y.data(), nullptr, 0, d_w.data(), d_b.data());
    for (int64_t o = 0; o < s.outputs; ++o) {
      double want_b = 0;
      for (int64_t r = 0; r < s.rows; ++r) want_b += c.d_y[static_cast<size_t>(r * s.outputs + o)];
      EXPECT_NEAR(d_b[static_cast<size_t>(o)], want_b, 1e-5);
      for (int64_t i = 0; i < s.inputs; ++i) {
        double want = 0;
        for (int64_t r = 0; r < s.rows; ++r) {
          want += static_cast<double>(c.x[static_cast<size_t>(r * s.x_stride + i)]) *
                  c.d_y[static_cast<size_t>(r * s.outputs + o)];
        }
        EXPECT_NEAR(d_w[static_cast<size_t>(i * s.outputs + o)], want, 1e-5);
      }
    }
  }
}

TEST(Dense, InputGradientCoversTheColumnsAskedFor) {
  for (const Case& c : Cases()) {
    const DenseShape& s = c.shape;
    for (const int64_t columns : {s.inputs, (s.inputs + 1) / 2}) {
      std::vector<float> d_x(c.x.size(), 5.0f), d_w(c.w.size()), d_b(c.b.size());
      DenseBackward(s, c.x.data(), c.w.data(), c.d_y.data(), d_x.data(), columns, d_w.data(),
                    d_b.data());
      for (int64_t r = 0; r < s.rows; ++r) {
        for (int64_t i = 0; i < s.x_stride; ++i) {
          double want = 0;
          for (int64_t o = 0; o < s.outputs && i < columns; ++o) {
            want += static_cast<double>(c.d_y[static_cast<size_t>(r * s.outputs + o)]) *
                    c.w[static_cast<size_t>(i * s.outputs + o)];
          }
          EXPECT_NEAR(d_x[static_cast<size_t>(r * s.x_stride + i)], i < columns ? want : 5.0, 1e-5);
        }
      }
    }
  }
}

TEST(Dense, RepeatsBitForBit) {
  const Case c = Make(128, 429, 64, 432);
  std::vector<float> first(c.d_y.size()), second(c.d_y.size());
  DenseForward(c.shape, c.x.data(), c.w.data(), c.b.data(), true, first.data());
  DenseForward(c.shape, c.x.data(), c.w.data(), c.b.data(), true, second.data());
  EXPECT_EQ(first, second);
}

// OpenBLAS takes processors that it does not know for Prescott, which has 4 floats in a vector.
TEST(Dense, ProductsUseTheVectorsOfThisProcessor) {
#if defined(__x86_64__)
  if (std::getenv("OPENBLAS_CORETYPE") != nullptr) GTEST_SKIP() << "OPENBLAS_CORETYPE is set";
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
    GTEST_SKIP() << "no vectors of 8 floats";
  }
  EXPECT_NE(BlasProcessor(), "Prescott");
  EXPECT_EQ(std::getenv("OPENBLAS_CORETYPE"), nullptr);
#endif
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// OpenBLAS would retry forever to map its buffer, and ignore signals that ask the process to end.
TEST(Dense, WhereAddressesRunOutItThrows) {
  constexpr int kThrown = 42;
  const auto run = [] {
    long pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t limit = static_cast<rlim_t>(pages * sysconf(_SC_PAGE_SIZE)) + (rlim_t{64} << 20);
    const rlimit addresses = {.rlim_cur = limit, .rlim_max = limit};
    setrlimit(RLIMIT_AS, &addresses);
    // In a thread that has no buffer yet.
    std::thread([] {
      const std::vector<float> x(4), w(4), b(2);
      std::vector<float> y(4);
      try {
        DenseForward({2, 2, 2, 2}, x.data(), w.data(), b.data(), false, y.data());
      } catch (const std::bad_alloc&) {
        _exit(kThrown);
      }
    }).join();
    _exit(0);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(kThrown), "");
}
#endif

}  // namespace
}  // namespace cairn
