#include "worker/trainer/checkpoints/checkpoint_manifest.h"

#include <algorithm>
#include <limits>
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
#include "common/errors.h"
#include "common/hash.h"
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

// Each file of a server takes some 100 bytes of the manifest, and each worker on each server up to
// 1.5 KiB: its position there has a byte or more for every server.
constexpr int64_t kMaxManifestBytes = 256 << 20;

std::string Hex(uint64_t number) { return absl::StrFormat("%016x", number); }

std::string PathIn(const std::string& folder) {
  return absl::StrCat(folder, "/", CheckpointManifest::kFileName);
}

// Replaces bytes that are not UTF-8, in the name of a directory for example, by U+FFFD.
std::string Dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
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

// A lower bound of the manifest's size.
int64_t LeastBytes(const std::vector<ServerCheckpoint>& servers) {
  constexpr int64_t kKeysBytes = 64;
  int64_t bytes = 0;
  for (const ServerCheckpoint& server : servers) {
    for (const CheckpointWorker& worker : server.workers) {
      bytes += kKeysBytes + static_cast<int64_t>(worker.position.size()) / 3 * 4;
    }
  }
  return bytes;
}

absl::Status TooLong(const std::string& path, int64_t bytes,
                     const std::vector<ServerCheckpoint>& servers) {
  size_t workers = 0;
  for (const ServerCheckpoint& server : servers) workers += server.workers.size();
  return ResourceExhausted(path, " would have at least ", bytes, " bytes, and ", kMaxManifestBytes,
                           " are allowed: ", servers.size(), " servers have ", workers,
                           " positions of workers: use fewer servers or workers");
}

// Thrown while a manifest is read, because nlohmann-json, which reports its own errors by
// exceptions, calls back into this file. The text says what is wrong with the manifest.
struct WrongManifest : std::runtime_error {
  using std::runtime_error::runtime_error;
};

const Json& Member(const Json& json, const char* key) {
  if (!json.is_object()) throw WrongManifest(absl::StrCat("no section has its key '", key, "'"));
  const auto found = json.find(key);
  if (found == json.end()) throw WrongManifest(absl::StrCat("its key '", key, "' is missing"));
  return *found;
}

template <typename T>
T Get(const Json& json, const char* key) {
  const Json& member = Member(json, key);
  try {
    return member.get<T>();
  } catch (const Json::exception&) {
    throw WrongManifest(
        absl::StrCat("its key '", key, "' has the wrong type, ", member.type_name()));
  }
}

ServerCheckpoint ServerFrom(const Json& json) {
  ServerCheckpoint server;
  server.server = Get<int32_t>(json, "server");
  server.folder = Get<std::string>(json, "folder");
  server.host = Get<std::string>(json, "host");
  for (const Json& file : Member(json, "files")) {
    server.files.push_back({Get<std::string>(file, "name"), Get<int64_t>(file, "bytes"), 0});
    if (!absl::SimpleHexAtoi(Get<std::string>(file, "xxh3"), &server.files.back().checksum)) {
      throw WrongManifest("a key 'xxh3' is no hexadecimal number");
    }
  }
  for (const Json& worker : Member(json, "workers")) {
    server.workers.push_back({Get<int32_t>(worker, "worker"),
                              Get<int64_t>(worker, "incarnation"),
                              Get<int64_t>(worker, "sequence"),
                              {}});
    if (!absl::Base64Unescape(Get<std::string>(worker, "position_base64"),
                              &server.workers.back().position)) {
      throw WrongManifest("a key 'position_base64' is no base64");
    }
  }
  return server;
}

// The JSON writer recurses at every level of nesting; the limit protects its stack.
bool RefuseDepth(int depth, Json::parse_event_t, Json&) {
  constexpr int kMaxDepth = 16;
  if (depth > kMaxDepth) throw WrongManifest("it is nested too deeply");
  return true;
}

absl::Status Damaged(const std::string& path, absl::string_view why) {
  return DataLoss(path, " is corrupt (", why,
                  "): name another checkpoint by checkpoint.restore, or bring this ",
                  "file back from a copy");
}

std::string FindInconsistency(const ServerCheckpoint& server) {
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
std::string FindInconsistency(const CheckpointManifest& manifest) {
  if (manifest.step < 0) return absl::StrCat("its step is ", manifest.step);
  // The next checkpoint's number is larger.
  if (manifest.number < 0 || manifest.number == std::numeric_limits<int64_t>::max()) {
    return absl::StrCat("its number is ", manifest.number);
  }
  if (manifest.servers.empty()) return "it names no server";
  for (size_t s = 0; s < manifest.servers.size(); ++s) {
    const ServerCheckpoint& server = manifest.servers[s];
    if (server.server != static_cast<int32_t>(s)) {
      return absl::StrCat("it names ps:", server.server, " where ps:", s, " is due");
    }
    std::string wrong = FindInconsistency(server);
    if (!wrong.empty()) return wrong;
  }
  return "";
}

}  // namespace

absl::Status CheckpointManifest::WriteTo(const std::string& folder) const {
  // Before the text is made, which would take some times its size in memory.
  if (const int64_t least = LeastBytes(servers); least > kMaxManifestBytes) {
    return TooLong(PathIn(folder), least, servers);
  }
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
  json["checksum"] = Hex(HashBytes(Dump(json, -1)));
  const std::string text = Dump(json, 1) + "\n";
  if (static_cast<int64_t>(text.size()) > kMaxManifestBytes) {
    return TooLong(PathIn(folder), static_cast<int64_t>(text.size()), servers);
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<PartFile> file,
                   PartFile::Create(PathIn(folder), "the checkpoint's manifest"));
  RETURN_IF_ERROR(file->Append(text));
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
    if (!json.is_object()) return Damaged(path, "it is JSON, but no object");
    const int64_t format = Get<int64_t>(json, "format");
    if (format != kFormat) {
      return FailedPrecondition(path, " has format ", format, ", this program reads format ",
                                kFormat, ": use the program that made it");
    }
    const std::string checksum = Get<std::string>(json, "checksum");
    json.erase("checksum");
    if (checksum != Hex(HashBytes(json.dump()))) return Damaged(path, "its checksum is wrong");
    manifest.job = Get<std::string>(json, "job");
    manifest.name = Get<std::string>(json, "name");
    manifest.number = Get<int64_t>(json, "number");
    manifest.step = Get<int64_t>(json, "step");
    manifest.finished = json.value("finished", false);  // absent in manifests from before the
                                                        // evaluator task
    manifest.timeline = TimelineOfManifest(Get<int64_t>(json, "timeline"));
    manifest.made = Get<std::string>(json, "made");
    manifest.seconds = Get<double>(json, "seconds");
    for (const Json& server : Member(json, "servers"))
      manifest.servers.push_back(ServerFrom(server));
  } catch (const WrongManifest& error) {
    return Damaged(path, error.what());
  } catch (const Json::parse_error& error) {
    const bool at_end = error.byte >= text->size();
    return Damaged(path, absl::StrCat("it is not valid JSON at byte ",
                                      std::min(error.byte, text->size()), " of ", text->size(),
                                      at_end ? ", its end: it is perhaps incomplete" : ""));
  } catch (const Json::exception&) {
    return Damaged(path, "it is JSON of another kind than a manifest");
  }
  const std::string wrong = FindInconsistency(manifest);
  return wrong.empty() ? absl::StatusOr<CheckpointManifest>(std::move(manifest))
                       : Damaged(path, wrong);
}

}  // namespace cairn
