// cuBLAS over the streams of the fake runtime.
#include "tests/support/fake_cuda/include/cublas_v2.h"

#include <cblas.h>

#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/support/fake_cuda/fake_gpus.h"

struct cublasContext {
  cudaStream_t stream = nullptr;
};

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  if (cairn::test::fake::Call("cublasCreate_v2") != cudaSuccess) {
    return CUBLAS_STATUS_NOT_INITIALIZED;
  }
  // Threads of OpenBLAS could not read device memory.
  openblas_set_num_threads(1);
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void* workspace, size_t bytes) {
  return workspace == nullptr && bytes > 0 ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
}

namespace {

// The matrix's numbers without the last `bits` of their fractions: what tensor cores read.
std::vector<float> Rounded(const float* from, int64_t count, int bits) {
  std::vector<float> rounded(from, from + count);
  const uint32_t last = uint32_t{1} << bits;
  for (float& x : rounded) {
    x = std::bit_cast<float>((std::bit_cast<uint32_t>(x) + last / 2) & ~(last - 1));
  }
  return rounded;
}

// A factor of each product of a batch, and where the products go.
struct Factor {
  const float* data;
  cublasOperation_t op;
  int64_t stride, step;

  CBLAS_TRANSPOSE cblas_op() const { return op == CUBLAS_OP_N ? CblasNoTrans : CblasTrans; }
  // Numbers from the first to the last one that a product uses.
  int64_t Count(int64_t rows, int64_t columns) const {
    if (op != CUBLAS_OP_N) std::swap(rows, columns);
    return rows == 0 || columns == 0 ? 0 : (columns - 1) * stride + rows;
  }
};
struct Product {
  float* data;
  int64_t stride, step;
};

cublasStatus_t QueueProducts(const char* name, cublasHandle_t handle, int64_t count, int64_t m,
                             int64_t n, int64_t k, const void* alpha, Factor a, Factor b,
                             const void* beta, Product c, cublasComputeType_t compute) {
  if (cairn::test::fake::Call(name, handle->stream) != cudaSuccess) {
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  if (count < 0 || m < 0 || n < 0 || k < 0) return CUBLAS_STATUS_INVALID_VALUE;
  const int bits = compute == CUBLAS_COMPUTE_32F_FAST_TF32   ? 13
                   : compute == CUBLAS_COMPUTE_32F_FAST_16BF ? 16
                                                             : 0;
  // The scalars are host memory, read at once.
  const float scale = *static_cast<const float*>(alpha), keep = *static_cast<const float*>(beta);
  cairn::test::fake::Enqueue(handle->stream, [=] {
    const auto size = [](int64_t extent) { return static_cast<int>(extent); };
    for (int64_t i = 0; i < count; ++i) {
      const float *x = a.data + i * a.step, *y = b.data + i * b.step;
      std::vector<float> rounded_x, rounded_y;
      if (bits > 0) {
        rounded_x = Rounded(x, a.Count(m, k), bits);
        rounded_y = Rounded(y, b.Count(k, n), bits);
        x = rounded_x.data();
        y = rounded_y.data();
      }
      cblas_sgemm(CblasColMajor, a.cblas_op(), b.cblas_op(), size(m), size(n), size(k), scale, x,
                  size(a.stride), y, size(b.stride), keep, c.data + i * c.step, size(c.stride));
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

cublasStatus_t cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t a_op,
                               cublasOperation_t b_op, int64_t m, int64_t n, int64_t k,
                               const void* alpha, const void* a, cudaDataType_t, int64_t a_stride,
                               const void* b, cudaDataType_t, int64_t b_stride, const void* beta,
                               void* c, cudaDataType_t, int64_t c_stride,
                               cublasComputeType_t compute, cublasGemmAlgo_t) {
  return QueueProducts("cublasGemmEx_64", handle, 1, m, n, k, alpha,
                       {static_cast<const float*>(a), a_op, a_stride, 0},
                       {static_cast<const float*>(b), b_op, b_stride, 0}, beta,
                       {static_cast<float*>(c), c_stride, 0}, compute);
}

cublasStatus_t cublasGemmStridedBatchedEx_64(
    cublasHandle_t handle, cublasOperation_t a_op, cublasOperation_t b_op, int64_t m, int64_t n,
    int64_t k, const void* alpha, const void* a, cudaDataType_t, int64_t a_stride, long long a_step,
    const void* b, cudaDataType_t, int64_t b_stride, long long b_step, const void* beta, void* c,
    cudaDataType_t, int64_t c_stride, long long c_step, int64_t count, cublasComputeType_t compute,
    cublasGemmAlgo_t) {
  return QueueProducts("cublasGemmStridedBatchedEx_64", handle, count, m, n, k, alpha,
                       {static_cast<const float*>(a), a_op, a_stride, a_step},
                       {static_cast<const float*>(b), b_op, b_stride, b_step}, beta,
                       {static_cast<float*>(c), c_stride, c_step}, compute);
}

const char* cublasGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "CUBLAS_STATUS_SUCCESS" : "a status of the fake cuBLAS";
}
