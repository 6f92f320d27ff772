// A PsClient whose checkpoints have one part, for tests of what is made of parts.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "tests/worker/trainer/recording_client.h"

namespace cairn::test {

// Writes and deletes parts of one server.
class PartsClient : public RecordingClient {
 public:
  // Runs after the part is written and before its call returns.
  void Meanwhile(std::function<absl::Status()> what) { meanwhile_ = std::move(what); }
  void BeforeDrop(std::function<void()> what) { before_drop_ = std::move(what); }
  const std::vector<std::string>& dropped() const { return dropped_; }

  absl::StatusOr<std::vector<ServerCheckpoint>> Checkpoint(absl::string_view directory,
                                                           absl::string_view name,
                                                           Deadline) override {
    const std::string part = absl::StrCat(directory, "/", name, "/ps-0");
    std::filesystem::create_directories(part);
    if (meanwhile_ != nullptr) {
      const absl::Status status = std::exchange(meanwhile_, nullptr)();
      if (!status.ok()) return status;
    }
    ServerCheckpoint server{.server = 0, .folder = part, .host = "h"};
    server.files = {{"CAIRN", 7, 1}};
    return std::vector<ServerCheckpoint>{server};
  }
  absl::Status DropCheckpoint(absl::string_view directory, absl::string_view name,
                              Deadline) override {
    if (before_drop_ != nullptr) before_drop_();
    dropped_.emplace_back(name);
    std::filesystem::remove_all(absl::StrCat(directory, "/", name, "/ps-0"));
    return absl::OkStatus();
  }

 private:
  std::function<absl::Status()> meanwhile_;
  std::function<void()> before_drop_;
  std::vector<std::string> dropped_;
};

}  // namespace cairn::test
