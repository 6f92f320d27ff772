// NCCL's functions, looked up when they are first asked for: a program that uses no GPU starts
// without NCCL, and where it is not installed.
#pragma once

#include <nccl.h>

#include "absl/status/status.h"

namespace cairn {

// Thread safety: immutable.
struct Nccl {
  absl::Status loaded;  // kFailedPrecondition: the library or a function of it is missing; says why
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclCommInitRankConfig) init_rank = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclCommGetAsyncError) async_error = nullptr;
  decltype(&ncclGetUniqueId) unique_id = nullptr;
  decltype(&ncclGetErrorString) error_text = nullptr;

  static const Nccl& Get();
};

}  // namespace cairn
