#include "worker/collective/nccl_library.h"

#include <dlfcn.h>

#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

Nccl Load() {
  Nccl nccl;
  const std::string name = absl::StrCat("libnccl.so.", NCCL_MAJOR);
  void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    nccl.loaded = absl::FailedPreconditionError(absl::StrCat(
        "NCCL is missing (", dlerror(), "): install it, or name its folder in LD_LIBRARY_PATH"));
    return nccl;
  }
  const auto find = [&](const char* symbol, auto* function) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(library, symbol));
    if (*function == nullptr) {
      nccl.loaded = absl::FailedPreconditionError(
          absl::StrCat(name, " has no ", symbol, ": a newer NCCL is needed"));
    }
  };
  find("ncclAllReduce", &nccl.all_reduce);
  find("ncclBroadcast", &nccl.broadcast);
  find("ncclReduceScatter", &nccl.reduce_scatter);
  find("ncclSend", &nccl.send);
  find("ncclRecv", &nccl.receive);
  find("ncclGroupStart", &nccl.group_start);
  find("ncclGroupEnd", &nccl.group_end);
  find("ncclCommInitRankConfig", &nccl.init_rank);
  find("ncclCommAbort", &nccl.abort);
  find("ncclCommGetAsyncError", &nccl.async_error);
  find("ncclGetUniqueId", &nccl.unique_id);
  find("ncclGetErrorString", &nccl.error_text);
  return nccl;
}

}  // namespace

const Nccl& Nccl::Get() {
  static const Nccl* const nccl = new Nccl(Load());
  return *nccl;
}

}  // namespace cairn
