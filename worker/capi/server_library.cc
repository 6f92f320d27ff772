#include "worker/capi/server_library.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/catch_exceptions.h"
#include "worker/cluster/server.h"

namespace {

using cairn::Server;

void Write(absl::string_view from, char* text, uint64_t capacity) {
  if (capacity == 0) return;
  const size_t bytes = std::min<size_t>(from.size(), capacity - 1);
  std::memcpy(text, from.data(), bytes);
  text[bytes] = '\0';
}

absl::StatusOr<std::unique_ptr<Server>> Start(const cairn_server_options& options) {
  const std::vector<std::string> addresses(static_cast<size_t>(options.count), "127.0.0.1:0");
  return Server::Create(cairn::ClusterSpec::FromLists({{"ps", addresses}}),
                        {.job_name = "ps",
                         .task_index = options.index,
                         .data_directory = options.directory,
                         .durability = options.durability,
                         .memory_budget_bytes = options.memory_budget_bytes,
                         .keep_all_rows = options.keep_all_rows != 0});
}

}  // namespace

extern "C" {

void* cairn_server_start(const cairn_server_options* options, int* code, char* text,
                         uint64_t capacity) {
  absl::StatusOr<std::unique_ptr<Server>> server =
      cairn::CatchExceptions("starting a server", [&] { return Start(*options); });
  *code = static_cast<int>(server.status().code());
  Write(server.ok() ? (*server)->target() : std::string(server.status().message()), text, capacity);
  return server.ok() ? server->release() : nullptr;
}

int cairn_server_stop(void* server, char* text, uint64_t capacity) {
  const std::unique_ptr<Server> owned(static_cast<Server*>(server));
  const absl::Status status =
      cairn::CatchExceptions("stopping a server", [&] { return owned->Stop(); });
  Write(status.message(), text, capacity);
  return static_cast<int>(status.code());
}

}  // extern "C"
