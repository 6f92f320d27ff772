// NCCL's functions.
#pragma once

#include <nccl.h>

#include "absl/strings/str_cat.h"
#include "common/dynamic_library.h"

namespace cairn {

// Thread safety: immutable.
struct Nccl {
  DynamicLibrary library{"NCCL", absl::StrCat("libnccl.so.", NCCL_MAJOR)};
  DynamicFunction<decltype(ncclAllReduce)> all_reduce{library, "ncclAllReduce"};
  DynamicFunction<decltype(ncclBroadcast)> broadcast{library, "ncclBroadcast"};
  DynamicFunction<decltype(ncclReduce)> reduce{library, "ncclReduce"};
  DynamicFunction<decltype(ncclReduceScatter)> reduce_scatter{library, "ncclReduceScatter"};
  DynamicFunction<decltype(ncclSend)> send{library, "ncclSend"};
  DynamicFunction<decltype(ncclRecv)> receive{library, "ncclRecv"};
  DynamicFunction<decltype(ncclGroupStart)> group_start{library, "ncclGroupStart"};
  DynamicFunction<decltype(ncclGroupEnd)> group_end{library, "ncclGroupEnd"};
  DynamicFunction<decltype(ncclCommInitRankConfig)> init_rank{library, "ncclCommInitRankConfig"};
  DynamicFunction<decltype(ncclCommDestroy)> destroy{library, "ncclCommDestroy"};
  DynamicFunction<decltype(ncclCommAbort)> abort{library, "ncclCommAbort"};
  DynamicFunction<decltype(ncclCommGetAsyncError)> async_error{library, "ncclCommGetAsyncError"};
  DynamicFunction<decltype(ncclGetUniqueId)> unique_id{library, "ncclGetUniqueId"};
  DynamicFunction<decltype(ncclGetErrorString)> error_text{library, "ncclGetErrorString"};

  // Loads the library on first use. If library.status() is not OK, no function may be called.
  static const Nccl& Get() {
    static const auto* const nccl = new Nccl;
    return *nccl;
  }
};

}  // namespace cairn
