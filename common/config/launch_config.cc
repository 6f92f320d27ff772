#include "common/config/launch_config.h"

#include "common/config/config_node.h"
#include "common/config/section_reader.h"
#include "common/status.h"

namespace cairn {
namespace {

constexpr int64_t kMaxServers = 256;  // each has threads and files of its own

absl::StatusOr<LaunchConfig> ReadLaunchText(absl::string_view text, absl::string_view source) {
  ASSIGN_OR_RETURN(const ConfigNode root, ParseTree(text, source));
  LaunchConfig config;
  int64_t servers = config.servers;
  RETURN_IF_ERROR(ReadSection(
      root, "",
      {Integer("servers", &servers, 1, kMaxServers), Path("directory", &config.directory),
       Choice("durability", &config.durability, {"off", "snapshot", "log", "log_sync"})}));
  config.servers = static_cast<int32_t>(servers);
  if (!config.directory.empty()) return config;
  return absl::InvalidArgumentError(
      absl::StrCat(source, ": directory: is missing; expected a folder for the servers' state"));
}

}  // namespace

absl::StatusOr<LaunchConfig> ParseLaunchConfig(absl::string_view text, absl::string_view source) {
  absl::StatusOr<LaunchConfig> config = ReadLaunchText(text, source);
  if (!config.ok()) return PrintableStatus(config.status());
  return config;
}

}  // namespace cairn
