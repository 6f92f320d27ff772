// cuBLAS over the streams of the fake runtime.
#include "tests/support/fake_cuda/include/cublas_v2.h"

#include <cblas.h>

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

cublasStatus_t cublasSgemm_v2_64(cublasHandle_t handle, cublasOperation_t a_op,
                                 cublasOperation_t b_op, int64_t m, int64_t n, int64_t k,
                                 const float* alpha, const float* a, int64_t a_stride,
                                 const float* b, int64_t b_stride, const float* beta, float* c,
                                 int64_t c_stride) {
  if (cairn::test::fake::Call("cublasSgemm_v2_64", handle->stream) != cudaSuccess) {
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  if (m < 0 || n < 0 || k < 0) return CUBLAS_STATUS_INVALID_VALUE;
  const auto op = [](cublasOperation_t of) {
    return of == CUBLAS_OP_N ? CblasNoTrans : CblasTrans;
  };
  const auto size = [](int64_t extent) { return static_cast<int>(extent); };
  // The factors are host memory, read at once.
  cairn::test::fake::Enqueue(handle->stream, [=, scale = *alpha, keep = *beta] {
    cblas_sgemm(CblasColMajor, op(a_op), op(b_op), size(m), size(n), size(k), scale, a,
                size(a_stride), b, size(b_stride), keep, c, size(c_stride));
  });
  return CUBLAS_STATUS_SUCCESS;
}

const char* cublasGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "CUBLAS_STATUS_SUCCESS" : "a status of the fake cuBLAS";
}
