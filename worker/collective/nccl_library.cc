#include "worker/collective/nccl_library.h"

namespace cairn {

const Nccl& Nccl::Get() {
  static const Nccl* const nccl = new Nccl;
  return *nccl;
}

}  // namespace cairn
