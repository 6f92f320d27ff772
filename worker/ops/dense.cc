#include "worker/ops/dense.h"

#include <cblas.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <new>

#include "worker/ops/elementwise.h"

namespace cairn {
namespace {

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
