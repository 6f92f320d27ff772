// The C interface: servers in this process.
#include <dlfcn.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/config/config_node.h"
#include "common/config/section_reader.h"
#include "common/create_directory.h"
#include "common/dynamic_library.h"
#include "common/errors.h"
#include "common/status.h"
#include "thrift/limits.h"
#include "worker/capi/c.h"
#include "worker/capi/call.h"
#include "worker/capi/handle_table.h"
#include "worker/capi/server_library.h"

namespace cairn::capi {
namespace {

constexpr char kFile[] = "libcairn_server.so.0";
constexpr size_t kTextBytes = 4096;

// The library beside this one, else the file name alone for the loader's search path.
std::string LibraryFile() {
  Dl_info info = {};
  if (::dladdr(reinterpret_cast<void*>(&cairn_launch), &info) == 0 || info.dli_fname == nullptr) {
    return kFile;
  }
  const std::filesystem::path beside = std::filesystem::path(info.dli_fname).parent_path() / kFile;
  std::error_code error;
  return std::filesystem::exists(beside, error) ? beside.string() : std::string(kFile);
}

// How a program describes the servers.
struct LaunchConfig {
  int64_t servers = 1;
  std::string directory;  // parent of the servers' state folders, ps-0, ps-1, …
  std::string durability = "snapshot";
  int64_t memory_budget_bytes = 0;  // of each server; 0: the default
  bool keep_all_rows = false;
};

absl::StatusOr<LaunchConfig> ParseLaunchConfig(absl::string_view text, absl::string_view source) {
  ASSIGN_OR_RETURN(const ConfigNode root, ParseTree(text, source));
  LaunchConfig config;
  RETURN_IF_ERROR(ReadSection(
      root, "",
      {Integer("servers", &config.servers, 1, kMaxServers), Path("directory", &config.directory),
       Choice("durability", &config.durability, {"off", "snapshot", "log", "log_sync"}),
       Integer("memory_budget_bytes", &config.memory_budget_bytes, 0),
       Boolean("keep_all_rows", &config.keep_all_rows)}));
  if (!config.directory.empty()) return config;
  return InvalidArgument(source,
                         ": directory: is missing; expected a directory for the servers' state");
}

struct ServerLibrary {
  DynamicLibrary library{"Cairn's server library", LibraryFile()};
  DynamicFunction<decltype(cairn_server_start)> start{library, "cairn_server_start"};
  DynamicFunction<decltype(cairn_server_stop)> stop{library, "cairn_server_stop"};
};

const ServerLibrary& TheLibrary() {
  static const auto* const loaded = new ServerLibrary;
  return *loaded;
}

// Servers of this process. Thread safety: none.
class Servers {
 public:
  ~Servers() { (void)Stop(); }

  absl::Status Start(const LaunchConfig& config) {
    const ServerLibrary& library = TheLibrary();
    RETURN_IF_ERROR(library.library.status());
    const auto count = static_cast<int32_t>(config.servers);
    for (int32_t i = 0; i < count; ++i) {
      const std::string directory = absl::StrCat(config.directory, "/ps-", i);
      const std::error_code error = CreateDirectories(directory);
      if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("making ", directory));
      std::string text(kTextBytes, '\0');
      int code = 0;
      const cairn_server_options options = {.directory = directory.c_str(),
                                            .durability = config.durability.c_str(),
                                            .index = i,
                                            .count = count,
                                            .memory_budget_bytes = config.memory_budget_bytes,
                                            .keep_all_rows = config.keep_all_rows ? 1 : 0};
      void* const server = library.start(&options, &code, text.data(), text.size());
      text.resize(text.find('\0'));
      if (server == nullptr) {
        return absl::Status(static_cast<absl::StatusCode>(code),
                            absl::StrCat("ps:", i, " of ", count, ": ", text));
      }
      servers_.push_back(server);
      addresses_.push_back(std::move(text));
    }
    return absl::OkStatus();
  }

  absl::Status Stop() {
    absl::Status first;
    for (void* const server : servers_) {
      std::string text(kTextBytes, '\0');
      const int code = TheLibrary().stop(server, text.data(), text.size());
      text.resize(text.find('\0'));
      if (code != 0 && first.ok()) first = absl::Status(static_cast<absl::StatusCode>(code), text);
    }
    servers_.clear();
    return first;
  }

  const std::vector<std::string>& addresses() const { return addresses_; }

 private:
  std::vector<void*> servers_;
  std::vector<std::string> addresses_;
};

absl::Status Launch(const char* description, cairn_servers** handle) {
  RETURN_IF_ERROR(CheckNotNull(handle, "servers"));
  *handle = nullptr;
  RETURN_IF_ERROR(CheckNotNull(description, "description"));
  const absl::StatusOr<LaunchConfig> parsed = ParseLaunchConfig(description, "description");
  if (!parsed.ok()) {
    return WithoutLine(PrintableStatus(parsed.status()), description, "description");
  }
  const auto servers = std::make_shared<Servers>();
  RETURN_IF_ERROR(servers->Start(*parsed));
  *handle = static_cast<cairn_servers*>(InsertHandle(HandleKind::kServers, servers));
  return absl::OkStatus();
}

}  // namespace

extern "C" {

int cairn_launch(const char* description, cairn_servers** servers) {
  return Run("cairn_launch", [&] { return Annotate(Launch(description, servers), "launch"); });
}

int cairn_launched_addresses(cairn_servers* servers, char** addresses) {
  return Run("cairn_launched_addresses", [&]() -> absl::Status {
    RETURN_IF_ERROR(CheckNotNull(addresses, "addresses"));
    ASSIGN_OR_RETURN(const auto found, FindHandle(HandleKind::kServers, servers));
    const auto& known = *static_cast<const Servers*>(found.get());
    *addresses = CopyText(absl::StrJoin(known.addresses(), ","));
    return absl::OkStatus();
  });
}

int cairn_stop_servers(cairn_servers* servers) {
  return Run("cairn_stop_servers", [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const auto found, RemoveHandle(HandleKind::kServers, servers));
    return static_cast<Servers*>(found.get())->Stop();
  });
}

}  // extern "C"

}  // namespace cairn::capi
