// `model.embedding.row_storage`: the formats in which servers keep the rows of the model's tables.
#include <iterator>
#include <utility>

#include "common/config/job_sections.h"
#include "common/config/section_reader.h"
#include "common/status.h"

namespace cairn {
namespace {

Field Format(absl::string_view key, size_t known, RowFormat* out) {
  return Custom(key, [=](const ConfigNode& value, const std::string& path) -> absl::Status {
    const auto first = std::begin(kRowFormatNames);
    std::string name;
    // Reads one of the allowed names into `name`.
    const Field choice = Choice(key, &name, Names(first, first + known));
    RETURN_IF_ERROR(choice.read(value, path));
    for (size_t i = 0; i < known; ++i) {
      if (name == kRowFormatNames[i]) *out = static_cast<RowFormat>(i);
    }
    return absl::OkStatus();
  });
}

std::vector<Field> StorageFields(RowStorage* storage) {
  return {Format("values", std::size(kRowFormatNames), &storage->values),
          Format("slots", kSlotFormats, &storage->slots)};
}

absl::Status ReadPerTable(const ConfigNode& value, const std::string& path,
                          std::vector<TableRowStorage>* out) {
  return ReadMatches(
      value, path, "{match: \"wide/*\", values: float32}", "tables, as in \"wide/*\"",
      [](TableRowStorage* entry) { return StorageFields(&entry->storage); },
      [](const ConfigNode&, const std::string&, const TableRowStorage&) {
        return absl::OkStatus();
      },
      out);
}

}  // namespace

absl::Status ReadRowStorage(const ConfigNode& section, const std::string& path,
                            RowStorageConfig* config) {
  RowStorageConfig result;
  std::vector<Field> fields = StorageFields(&result.storage);
  fields.push_back(Value("per_table", ReadPerTable, &result.per_table));
  RETURN_IF_ERROR(ReadSection(section, path, fields));
  *config = std::move(result);
  return absl::OkStatus();
}

RowStorage RowStorageFor(const RowStorageConfig& config, absl::string_view table) {
  for (const TableRowStorage& entry : config.per_table) {
    if (MatchesPattern(entry.match, table)) return entry.storage;
  }
  return config.storage;
}

}  // namespace cairn
