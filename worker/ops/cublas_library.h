// cuBLAS' functions.
#pragma once

#include <cublas_v2.h>

#include "absl/strings/str_cat.h"
#include "common/dynamic_library.h"

namespace cairn {

// Thread safety: immutable.
struct Cublas {
  DynamicLibrary library{"cuBLAS", absl::StrCat("libcublas.so.", CUBLAS_VER_MAJOR)};
  DynamicFunction<decltype(cublasCreate_v2)> create{library, "cublasCreate_v2"};
  DynamicFunction<decltype(cublasDestroy_v2)> destroy{library, "cublasDestroy_v2"};
  DynamicFunction<decltype(cublasSetStream_v2)> set_stream{library, "cublasSetStream_v2"};
  DynamicFunction<decltype(cublasSetWorkspace_v2)> set_workspace{library, "cublasSetWorkspace_v2"};
  DynamicFunction<decltype(cublasGemmEx_64)> gemm{library, "cublasGemmEx_64"};
  DynamicFunction<decltype(cublasGemmStridedBatchedEx_64)> gemm_batch{
      library, "cublasGemmStridedBatchedEx_64"};
  DynamicFunction<decltype(cublasGetStatusString)> text{library, "cublasGetStatusString"};

  // Loads the library on first use. If library.status() is not OK, no function may be called.
  static const Cublas& Get() {
    static const auto* const cublas = new Cublas;
    return *cublas;
  }
};

}  // namespace cairn
