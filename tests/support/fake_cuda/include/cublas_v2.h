// The part of cuBLAS' API that Cairn's host code calls, for builds without the toolkit. Names and
// numbers are cuBLAS'; fake_cublas.cc implements the functions.
#pragma once

#include <cstdint>

#include "cuda_runtime_api.h"

#define CUBLAS_VER_MAJOR 13

enum cublasStatus_t {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_NOT_INITIALIZED = 1,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
};
enum cublasOperation_t { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };
using cublasHandle_t = struct cublasContext*;

extern "C" {
cublasStatus_t cublasCreate_v2(cublasHandle_t* handle);
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle);
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream);
cublasStatus_t cublasSgemm_v2_64(cublasHandle_t handle, cublasOperation_t a_op,
                                 cublasOperation_t b_op, int64_t m, int64_t n, int64_t k,
                                 const float* alpha, const float* a, int64_t a_stride,
                                 const float* b, int64_t b_stride, const float* beta, float* c,
                                 int64_t c_stride);
const char* cublasGetStatusString(cublasStatus_t status);
}
