// CudaDeviceQueue's matrix products, by cuBLAS.
#include "absl/cleanup/cleanup.h"
#include "common/errors.h"
#include "common/status.h"
#include "worker/ops/cublas_library.h"
#include "worker/ops/cuda_device_queue.h"

namespace cairn {
namespace {

cublasComputeType_t ComputeTypeOf(MatmulPrecision precision) {
  switch (precision) {
    case MatmulPrecision::kTf32: return CUBLAS_COMPUTE_32F_FAST_TF32;
    case MatmulPrecision::kBFloat16: return CUBLAS_COMPUTE_32F_FAST_16BF;
    case MatmulPrecision::kFloat32: break;
  }
  return CUBLAS_COMPUTE_32F;
}

cublasOperation_t OperationOf(const ColumnMajor& x) {
  return x.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
}

}  // namespace

// Opens cuBLAS before the first product, because queues that only use tensors do not need it.
absl::Status CudaDeviceQueue::OpenBlas() {
  if (blas_ != nullptr) return absl::OkStatus();
  const Cublas& cublas = Cublas::Get();
  RETURN_IF_ERROR(Annotate(cublas.library.status(), device_.text()));
  cublasHandle_t blas = nullptr;
  cublasStatus_t status = cublas.create(&blas);
  if (status == CUBLAS_STATUS_SUCCESS) status = cublas.set_stream(blas, compute_.get());
  if (status == CUBLAS_STATUS_SUCCESS) {
    blas_ = blas;
    return absl::OkStatus();
  }
  if (blas != nullptr) cublas.destroy(blas);
  return FailedPrecondition(device_.text(), ": cuBLAS: ", cublas.text(status));
}

absl::Status CudaDeviceQueue::PrepareProducts() {
  const absl::Cleanup deselect = [] { Deselect(); };
  Select();
  RETURN_IF_ERROR(error_);
  return OpenBlas();
}

bool CudaDeviceQueue::BeginProduct() {
  if (!error_.ok()) return false;
  BeginOp();
  Fail(OpenBlas());
  return error_.ok();
}

void CudaDeviceQueue::NoteProduct(cublasStatus_t status, int64_t m, int64_t n, int64_t k) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  Fail(Internal(device_.text(), ": cuBLAS: product of ", m, " x ", k, " and ", k, " x ", n, ": ",
                Cublas::Get().text(status)));
}

void CudaDeviceQueue::Multiply(int64_t m, int64_t n, int64_t k, ColumnMajor a, ColumnMajor b,
                               float* c, int64_t c_stride) {
  if (Defer([=, this] { Multiply(m, n, k, a, b, c, c_stride); }, 'm', m, n, k, a, b, c, c_stride,
            precision_)) {
    return;
  }
  if (!BeginProduct()) return;
  const float one = 1, zero = 0;
  NoteProduct(
      Cublas::Get().gemm(blas_, OperationOf(a), OperationOf(b), m, n, k, &one, a.data, CUDA_R_32F,
                         a.stride, b.data, CUDA_R_32F, b.stride, &zero, c, CUDA_R_32F, c_stride,
                         ComputeTypeOf(precision_), CUBLAS_GEMM_DEFAULT),
      m, n, k);
}

void CudaDeviceQueue::MultiplyEach(const ProductBatch& batch, int64_t m, int64_t n, int64_t k,
                                   ColumnMajor a, ColumnMajor b, float* c, int64_t c_stride) {
  if (Defer([=, this] { MultiplyEach(batch, m, n, k, a, b, c, c_stride); }, 'e', batch, m, n, k, a,
            b, c, c_stride, precision_)) {
    return;
  }
  if (!BeginProduct()) return;
  const float one = 1, zero = 0;
  NoteProduct(
      Cublas::Get().gemm_batch(blas_, OperationOf(a), OperationOf(b), m, n, k, &one, a.data,
                               CUDA_R_32F, a.stride, batch.a_step, b.data, CUDA_R_32F, b.stride,
                               batch.b_step, &zero, c, CUDA_R_32F, c_stride, batch.c_step,
                               batch.count, ComputeTypeOf(precision_), CUBLAS_GEMM_DEFAULT),
      m, n, k);
}

}  // namespace cairn
