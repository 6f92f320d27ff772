#include "worker/trainer/checkpoints/checkpoint_manifest.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/dtype.h"
#include "common/hash.h"
#include "common/printable_text.h"
#include "common/regular_file.h"
#include "common/status.h"
#include "common/timeline.h"
#include "common/version.h"
#include "worker/trainer/files/part_file.h"

namespace cairn {

static_assert(CheckpointManifest::kFormat == kCheckpointFormat);  // the format that --version
                                                                  // prints
namespace {

using Json = nlohmann::ordered_json;

// Each file of a server takes some 100 bytes of the manifest, each worker 1.5 KiB.
constexpr int64_t kMaxManifestBytes = 64 << 20;

std::string Hex(uint64_t number) { return absl::StrFormat("%016x", number); }

std::string PathIn(const std::string& folder) {
  return absl::StrCat(folder, "/", CheckpointManifest::kFileName);
}

Json VariablesJson(const std::vector<ServerCheckpoint>& servers) {
  std::map<std::string, Json> by_name;
  for (const ServerCheckpoint& server : servers) {
    for (const CheckpointVariable& variable : server.variables) {
      const VariableSpec& spec = variable.spec;
      Json& json = by_name[spec.name];
      if (json.is_null()) {
        json = {{"name", spec.name},
                {"kind", spec.kind == VariableKind::kDense ? "dense" : "embedding"},
                {"dtype", std::string(DTypeName(spec.dtype))},
                {"shape", spec.shape},
                {"rows", 0},
                {"updates", 0}};
      }
      json["rows"] = json["rows"].get<int64_t>() + variable.rows;
      json["updates"] = std::max(json["updates"].get<int64_t>(), variable.updates);
    }
  }
  Json all = Json::array();
  for (auto& [name, json] : by_name) all.push_back(std::move(json));
  return all;
}

Json ServerJson(const ServerCheckpoint& server) {
  Json files = Json::array();
  for (const CheckpointFile& file : server.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"xxh3", Hex(file.checksum)}});
  }
  Json workers = Json::array();
  for (const CheckpointWorker& worker : server.workers) {
    workers.push_back({{"worker", worker.worker},
                       {"incarnation", worker.incarnation},
                       {"sequence", worker.sequence},
                       {"position_base64", absl::Base64Escape(worker.position)}});
  }
  return {{"server", server.server},
          {"folder", server.folder},
          {"host", server.host},
          {"workers", workers},
          {"files", files}};
}

ServerCheckpoint ServerFrom(const Json& json) {
  ServerCheckpoint server;
  server.server = json.at("server").get<int32_t>();
  server.folder = json.at("folder").get<std::string>();
  server.host = json.at("host").get<std::string>();
  for (const Json& file : json.at("files")) {
    server.files.push_back(
        {file.at("name").get<std::string>(), file.at("bytes").get<int64_t>(), 0});
    if (!absl::SimpleHexAtoi(file.at("xxh3").get<std::string>(), &server.files.back().checksum)) {
      throw std::invalid_argument("xxh3");
    }
  }
  for (const Json& worker : json.at("workers")) {
    server.workers.push_back({worker.at("worker").get<int32_t>(),
                              worker.at("incarnation").get<int64_t>(),
                              worker.at("sequence").get<int64_t>(),
                              {}});
    if (!absl::Base64Unescape(worker.at("position_base64").get<std::string>(),
                              &server.workers.back().position)) {
      throw std::invalid_argument("position_base64");
    }
  }
  return server;
}

// The JSON writer recurses at every level of nesting; the limit protects its stack.
bool RefuseDepth(int depth, Json::parse_event_t, Json&) {
  constexpr int kMaxDepth = 16;
  if (depth > kMaxDepth) throw std::invalid_argument("it is nested too deeply");
  return true;
}

absl::Status Damaged(const std::string& path, absl::string_view why) {
  return absl::DataLossError(absl::StrCat(
      path, " is corrupt (", why,
      "): name another checkpoint by checkpoint.restore, or bring this ", "file back from a copy"));
}

std::string WhatCannotBe(const ServerCheckpoint& server) {
  const std::string name = absl::StrCat("ps:", server.server);
  // A server that had left the cluster has neither files nor a folder.
  if (server.files.empty() && (server.server == 0 || !server.folder.empty())) {
    return absl::StrCat("it names no file of ", name);
  }
  std::set<absl::string_view> names;
  for (const CheckpointFile& file : server.files) {
    if (file.bytes < 0) return absl::StrCat("a file of ", name, " has ", file.bytes, " bytes");
    if (!names.insert(file.name).second) {
      return absl::StrCat("it names ", file.name, " of ", name, " twice");
    }
  }
  for (const CheckpointWorker& worker : server.workers) {
    if (worker.worker >= 0 && worker.incarnation >= 0 && worker.sequence >= 0) continue;
    return absl::StrCat("worker ", worker.worker, " has incarnation ", worker.incarnation,
                        " and sequence ", worker.sequence, " on ", name);
  }
  return "";
}

// What is impossible in a manifest with a valid checksum, which anyone can write; empty: nothing.
std::string WhatCannotBe(const CheckpointManifest& manifest) {
  if (manifest.step < 0) return absl::StrCat("its step is ", manifest.step);
  if (manifest.number < 0) return absl::StrCat("its number is ", manifest.number);
  if (manifest.servers.empty()) return "it names no server";
  for (size_t s = 0; s < manifest.servers.size(); ++s) {
    const ServerCheckpoint& server = manifest.servers[s];
    if (server.server != static_cast<int32_t>(s)) {
      return absl::StrCat("it names ps:", server.server, " where ps:", s, " is due");
    }
    std::string wrong = WhatCannotBe(server);
    if (!wrong.empty()) return wrong;
  }
  return "";
}

}  // namespace

absl::Status CheckpointManifest::WriteTo(const std::string& folder) const {
  Json json = {{"format", kFormat},
               {"job", job},
               {"name", name},
               {"number", number},
               {"step", step},
               {"finished", finished},
               {"timeline", timeline},
               {"made", made},
               {"seconds", seconds},
               {"variables", VariablesJson(servers)},
               {"servers", Json::array()}};
  for (const ServerCheckpoint& server : servers) json["servers"].push_back(ServerJson(server));
  json["checksum"] = Hex(HashBytes(json.dump()));
  ASSIGN_OR_RETURN(const std::unique_ptr<PartFile> file,
                   PartFile::Create(PathIn(folder), "the checkpoint's manifest"));
  RETURN_IF_ERROR(file->Append(json.dump(1) + "\n"));
  return file->Finish();
}

absl::StatusOr<CheckpointManifest> CheckpointManifest::ReadFrom(const std::string& folder) {
  const std::string path = PathIn(folder);
  const absl::StatusOr<std::string> text = ReadRegularFile(path, kMaxManifestBytes);
  if (absl::IsFailedPrecondition(text.status()) || absl::IsOutOfRange(text.status())) {
    return Damaged(path, text.status().message());
  }
  if (!text.ok()) return text.status();
  if (text->empty()) return Damaged(path, "it is empty");
  CheckpointManifest manifest;
  // nlohmann-json reports errors by exceptions, which are caught here.
  try {
    Json json = Json::parse(*text, RefuseDepth);
    const int64_t format = json.at("format").get<int64_t>();
    if (format != kFormat) {
      return absl::FailedPreconditionError(absl::StrCat(path, " has format ", format,
                                                        ", this program reads format ", kFormat,
                                                        ": use the program that made it"));
    }
    const std::string checksum = json.at("checksum").get<std::string>();
    json.erase("checksum");
    if (checksum != Hex(HashBytes(json.dump()))) return Damaged(path, "its checksum is wrong");
    manifest.job = json.at("job").get<std::string>();
    manifest.name = json.at("name").get<std::string>();
    manifest.number = json.at("number").get<int64_t>();
    manifest.step = json.at("step").get<int64_t>();
    manifest.finished = json.value("finished", false);  // absent in manifests from before the
                                                        // evaluator task
    manifest.timeline = TimelineOfManifest(json.at("timeline").get<int64_t>());
    manifest.made = json.at("made").get<std::string>();
    manifest.seconds = json.at("seconds").get<double>();
    for (const Json& server : json.at("servers")) manifest.servers.push_back(ServerFrom(server));
  } catch (const std::exception& error) {
    // The exception's text quotes the file, so it is escaped.
    return Damaged(path, EscapedText(absl::string_view(error.what()).substr(0, 300)));
  }
  const std::string wrong = WhatCannotBe(manifest);
  return wrong.empty() ? absl::StatusOr<CheckpointManifest>(std::move(manifest))
                       : Damaged(path, wrong);
}

}  // namespace cairn
