#include "worker/ops/cublas_library.h"

namespace cairn {

const Cublas& Cublas::Get() {
  static const Cublas* const cublas = new Cublas;
  return *cublas;
}

}  // namespace cairn
