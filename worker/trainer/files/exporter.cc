#include "worker/trainer/files/exporter.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "common/exit_status.h"
#include "common/log.h"
#include "common/shape.h"
#include "common/status.h"
#include "worker/trainer/files/npz_writer.h"
#include "worker/trainer/files/safetensors_writer.h"

namespace cairn {
namespace {

constexpr absl::string_view kVocabulary = "vocabulary";
constexpr absl::string_view kKeysSuffix = "/keys";
constexpr absl::string_view kValuesSuffix = "/values";

absl::Status ExportDense(PsClient& client, const VariableSpec& spec, ArrayWriter& writer,
                         Deadline deadline) {
  ASSIGN_OR_RETURN(const int64_t count, ElementCount(spec.shape));
  std::vector<std::byte> values(static_cast<size_t>(count) * DTypeBytes(spec.dtype));
  const PullTarget target{.variable = spec.name, .out = absl::MakeSpan(values)};
  RETURN_IF_ERROR(client.Pull({target}, deadline));
  return writer.Add(spec.name, spec.dtype, spec.shape, values);
}

absl::Status ExportTable(PsClient& client, const VariableSpec& spec, ArrayWriter& writer,
                         Deadline deadline) {
  std::vector<int64_t> keys;
  std::vector<std::byte> rows;
  const auto add = [&](int64_t key, absl::Span<const std::byte> values) {
    keys.push_back(key);
    rows.insert(rows.end(), values.begin(), values.end());
  };
  absl::Status scanned;
  do {
    keys.clear();
    rows.clear();
    scanned = client.Scan(spec.name, add, deadline);
  } while (absl::IsAborted(scanned));  // rows moved during the scan
  RETURN_IF_ERROR(scanned);
  const size_t row_bytes = static_cast<size_t>(spec.shape[0]) * DTypeBytes(spec.dtype);
  std::vector<size_t> order(keys.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, [&](size_t a, size_t b) { return keys[a] < keys[b]; });
  std::vector<int64_t> sorted_keys(keys.size());
  std::vector<std::byte> sorted_rows(rows.size());
  for (size_t i = 0; i < order.size(); ++i) {
    sorted_keys[i] = keys[order[i]];
    std::memcpy(sorted_rows.data() + i * row_bytes, rows.data() + order[i] * row_bytes, row_bytes);
  }
  const int64_t count = static_cast<int64_t>(keys.size());
  RETURN_IF_ERROR(writer.Add(absl::StrCat(spec.name, kKeysSuffix), DType::kInt64, {count},
                             AsBytes(absl::MakeConstSpan(sorted_keys))));
  return writer.Add(absl::StrCat(spec.name, kValuesSuffix), spec.dtype, {count, spec.shape[0]},
                    sorted_rows);
}

using Json = nlohmann::ordered_json;

// The properties that several variables may share.
Json SpecJson(const VariableSpec& spec) {
  const InitializerConfig initializer = WithDefaults(spec.initializer);
  Json json = {{"kind", spec.kind == VariableKind::kDense ? "dense" : "embedding"},
               {"dtype", std::string(DTypeName(spec.dtype))},
               {"shape", spec.shape}};
  if (spec.kind == VariableKind::kDense) return json;
  json["initializer"] = {{"type", initializer.type}, {"seed", initializer.seed}};
  for (const auto& [name, value] : initializer.arguments) json["initializer"][name] = value;
  json["row_values"] = std::string(RowFormatName(spec.row_storage.values));
  return json;
}

absl::StatusOr<std::unique_ptr<ArrayWriter>> MakeWriter(const std::string& path,
                                                        absl::Span<const VariableSpec> specs,
                                                        const std::string& metadata) {
  if (!absl::EndsWith(path, ".safetensors")) return NpzWriter::Create(path, metadata);
  std::vector<std::string> names = {std::string(kVocabulary)};
  for (const VariableSpec& spec : specs) {
    if (spec.kind == VariableKind::kDense) {
      names.push_back(spec.name);
    } else {
      names.push_back(absl::StrCat(spec.name, kKeysSuffix));
      names.push_back(absl::StrCat(spec.name, kValuesSuffix));
    }
  }
  return SafetensorsWriter::Create(path, names, metadata);
}

}  // namespace

absl::Status CheckExportFile(absl::string_view path) {
  if (absl::EndsWith(path, ".npz") || absl::EndsWith(path, ".safetensors")) return absl::OkStatus();
  return InvalidArgument("export file '", path,
                         "': name it .npz or .safetensors, which are written");
}

absl::Status CheckExportPlace(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return AsBadInput(
        InvalidArgument("export file ", path, " is a directory; name a writable file"));
  }
  std::string folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty()) folder = ".";
  const bool is_folder = std::filesystem::is_directory(folder, error);
  if (is_folder && access(folder.c_str(), W_OK | X_OK) == 0) return absl::OkStatus();
  const int why = error ? error.value() : is_folder ? errno : ENOTDIR;
  return AsBadInput(InvalidArgument("export file ", path, " cannot be made: directory ", folder,
                                    ": ", std::strerror(why), ": make it, or name another place"));
}

absl::Status ExportVariables(PsClient& client, absl::Span<const VariableSpec> specs,
                             const ExportNotes& notes, const std::string& path,
                             absl::Duration call_timeout) {
  if (path.empty()) return absl::OkStatus();
  std::string metadata = ExportMetadata(specs, notes);
  if (absl::EndsWith(path, ".npz") && metadata.size() > NpzWriter::kMaxMetadataBytes) {
    LOG(WARNING) << path << " is written without the metadata of its " << specs.size()
                 << " variables, which is too long for .npz: export to .safetensors";
    metadata.clear();
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<ArrayWriter> writer, MakeWriter(path, specs, metadata));
  for (const VariableSpec& spec : specs) {
    const Deadline deadline = Deadline::In(call_timeout);
    RETURN_IF_ERROR(spec.kind == VariableKind::kDense
                        ? ExportDense(client, spec, *writer, deadline)
                        : ExportTable(client, spec, *writer, deadline));
  }
  if (!notes.vocabulary.empty()) {
    RETURN_IF_ERROR(writer->AddStrings(kVocabulary, notes.vocabulary));
  }
  return writer->Finish();
}

std::string ExportMetadata(absl::Span<const VariableSpec> specs, const ExportNotes& notes) {
  Json json = {{"cairn_export", 1}};
  if (notes.job != nullptr) {
    json["job"] = notes.job->name;
    const ModelConfig& model = notes.job->model;
    json["model"] = {{"type", model.type},
                     {"loss", model.loss},
                     {"classes", model.classes},
                     {"hash_buckets", model.embedding.hash_buckets}};
    json["data"] = {{"format", notes.job->data.format}};
  }
  // Variables that differ only in their names form one group.
  std::vector<std::pair<Json, Json>> groups;
  for (const VariableSpec& spec : specs) {
    const Json shared = SpecJson(spec);
    const auto found =
        std::ranges::find_if(groups, [&](const auto& group) { return group.first == shared; });
    Json& names =
        found != groups.end() ? found->second : groups.emplace_back(shared, Json::array()).second;
    names.push_back(spec.name);
  }
  json["variables"] = Json::array();
  for (auto& [shared, names] : groups) {
    Json group = {{"names", std::move(names)}};
    group.update(shared);
    json["variables"].push_back(std::move(group));
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace cairn
