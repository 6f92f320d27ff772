// The version of a program, as printed by --version.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace cairn {

// Programs can communicate, open a data directory or read a checkpoint if the respective number is
// equal.
inline constexpr int kWireProtocol = 1;      // PROTOCOL_VERSION of thrift/cairn.thrift
inline constexpr int kStoreFormat = 1;       // kFormatVersion of storage/record.h
inline constexpr int kCheckpointFormat = 1;  // CheckpointManifest::kFormat

struct Version {
  std::string number;    // "0.2.0"
  std::string revision;  // of the sources, as git describes it; "unknown" outside a git checkout
  std::string compiler;  // "GCC 12.2.0"
  std::string build;     // "release, CUDA", "debug, address sanitizer"
};

Version ProgramVersion();

// Four lines: the program and its version, the revision, how it was built, and the formats above.
std::string VersionText(absl::string_view program);

}  // namespace cairn
