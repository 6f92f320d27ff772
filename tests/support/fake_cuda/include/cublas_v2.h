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
enum cudaDataType_t { CUDA_R_32F = 0 };
enum cublasComputeType_t {
  CUBLAS_COMPUTE_32F = 68,
  CUBLAS_COMPUTE_32F_FAST_16BF = 75,
  CUBLAS_COMPUTE_32F_FAST_TF32 = 77,
};
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT = -1 };
using cublasHandle_t = struct cublasContext*;

extern "C" {
cublasStatus_t cublasCreate_v2(cublasHandle_t* handle);
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle);
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream);
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, size_t bytes);
cublasStatus_t cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t a_op,
                               cublasOperation_t b_op, int64_t m, int64_t n, int64_t k,
                               const void* alpha, const void* a, cudaDataType_t a_type,
                               int64_t a_stride, const void* b, cudaDataType_t b_type,
                               int64_t b_stride, const void* beta, void* c, cudaDataType_t c_type,
                               int64_t c_stride, cublasComputeType_t compute,
                               cublasGemmAlgo_t algorithm);
cublasStatus_t cublasGemmStridedBatchedEx_64(
    cublasHandle_t handle, cublasOperation_t a_op, cublasOperation_t b_op, int64_t m, int64_t n,
    int64_t k, const void* alpha, const void* a, cudaDataType_t a_type, int64_t a_stride,
    long long a_step, const void* b, cudaDataType_t b_type, int64_t b_stride, long long b_step,
    const void* beta, void* c, cudaDataType_t c_type, int64_t c_stride, long long c_step,
    int64_t count, cublasComputeType_t compute, cublasGemmAlgo_t algorithm);
const char* cublasGetStatusString(cublasStatus_t status);
}
