#include "worker/ops/dense.h"

#include <cblas.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "worker/ops/elementwise.h"

#if defined(__x86_64__)
// OpenBLAS exports these, but declares them in no header: they forget and choose the kernels. A
// library built for one processor lacks them.
extern "C" {
[[gnu::weak]] void gotoblas_dynamic_quit();
[[gnu::weak]] void gotoblas_dynamic_init();
}
#endif

namespace cairn {
namespace {

#if defined(__x86_64__)
// OpenBLAS takes processors that are newer than itself for Prescott, the oldest with SSE3, and
// multiplies at a quarter of their speed: Debian 12's 0.3.21 does so from Emerald Rapids (2023) on.
// Chooses the kernels by the processor's instructions then. The user's choice has precedence.
bool ReplacePrescott() {
  constexpr char kChoice[] = "OPENBLAS_CORETYPE";
  const bool taken_for_prescott = std::strcmp(openblas_get_corename(), "Prescott") == 0;
  if (!taken_for_prescott || std::getenv(kChoice) != nullptr) return false;
  if (gotoblas_dynamic_quit == nullptr || gotoblas_dynamic_init == nullptr) return false;
  __builtin_cpu_init();
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (!avx512 && !avx2) return false;
  setenv(kChoice, avx512 ? "SkylakeX" : "Haswell", 1);
  gotoblas_dynamic_quit();
  gotoblas_dynamic_init();
  unsetenv(kChoice);
  return true;
}

// Before main, so that no thread computes a product meanwhile.
[[maybe_unused]] const bool replaced = ReplacePrescott();
#endif

// OpenBLAS maps a buffer of this size for each computing thread, and retries forever if it cannot
// (ulimit -v, or a scheduler's limit of virtual memory).
constexpr size_t kBlasBufferBytes = size_t{128} << 20;

void CheckRoomForBlas() {
  void* const room = mmap(nullptr, kBlasBufferBytes, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) throw std::bad_alloc();
  munmap(room, kBlasBufferBytes);
}

// Runs once, before the first product.
void ConfigureBlas() {
  thread_local const bool has_room = [] {
    CheckRoomForBlas();
    return true;
  }();
  static_cast<void>(has_room);
  static const bool configured = [] {
    if (std::getenv("OPENBLAS_NUM_THREADS") == nullptr &&
        std::getenv("OMP_NUM_THREADS") == nullptr) {
      openblas_set_num_threads(1);
    }
    return true;
  }();
  static_cast<void>(configured);
}

int Int(int64_t extent) { return static_cast<int>(extent); }

}  // namespace

std::string BlasProcessor() { return openblas_get_corename(); }

// With one output this is a matrix times a vector: sgemv streams x once, while sgemm would pack it.
void DenseForward(const DenseShape& shape, const float* x, const float* w, const float* b,
                  bool relu, float* y) {
  ConfigureBlas();
  const int rows = Int(shape.rows), inputs = Int(shape.inputs), outputs = Int(shape.outputs);
  if (outputs == 1) {
    cblas_sgemv(CblasRowMajor, CblasNoTrans, rows, inputs, 1.0f, x, Int(shape.x_stride), w, 1, 0.0f,
                y, 1);
  } else {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, outputs, inputs, 1.0f, x,
                Int(shape.x_stride), w, outputs, 0.0f, y, outputs);
  }
  AddToRows(b, static_cast<size_t>(shape.rows), static_cast<size_t>(shape.outputs), relu, y);
}

void DenseBackward(const DenseShape& shape, const float* x, const float* w, const float* d_y,
                   float* d_x, int64_t d_x_columns, float* d_w, float* d_b) {
  ConfigureBlas();
  const int rows = Int(shape.rows), inputs = Int(shape.inputs), outputs = Int(shape.outputs);
  const int stride = Int(shape.x_stride);
  if (d_b != nullptr) {
    SumRows(d_y, static_cast<size_t>(shape.rows), static_cast<size_t>(shape.outputs), d_b);
  }
  if (outputs == 1) {
    cblas_sgemv(CblasRowMajor, CblasTrans, rows, inputs, 1.0f, x, stride, d_y, 1, 0.0f, d_w, 1);
  } else {
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, inputs, outputs, rows, 1.0f, x, stride,
                d_y, outputs, 0.0f, d_w, outputs);
  }
  if (d_x == nullptr) return;
  if (outputs == 1) {
    OuterProduct(d_y, static_cast<size_t>(shape.rows), w, static_cast<size_t>(d_x_columns), d_x,
                 static_cast<size_t>(shape.x_stride));
  } else {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, Int(d_x_columns), outputs, 1.0f, d_y,
                outputs, w, outputs, 0.0f, d_x, stride);
  }
}

void AddMatrixTimesVector(const float* x, int64_t rows, int64_t columns, const float* w, float* y) {
  ConfigureBlas();
  cblas_sgemv(CblasRowMajor, CblasNoTrans, Int(rows), Int(columns), 1.0f, x, Int(columns), w, 1,
              1.0f, y, 1);
}

void TransposedMatrixTimesVector(const float* x, int64_t rows, int64_t columns, const float* d_y,
                                 float* d_w) {
  ConfigureBlas();
  cblas_sgemv(CblasRowMajor, CblasTrans, Int(rows), Int(columns), 1.0f, x, Int(columns), d_y, 1,
              0.0f, d_w, 1);
}

}  // namespace cairn
