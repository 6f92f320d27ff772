#include "worker/ctl/job_commands.h"

#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/deadline.h"
#include "common/dtype.h"
#include "common/errors.h"
#include "common/exit_status.h"
#include "common/hash.h"
#include "common/nearest.h"
#include "common/numeric_type.h"
#include "common/shape.h"
#include "common/status.h"
#include "worker/client/ps_client.h"
#include "worker/ctl/human_text.h"
#include "worker/ctl/jobs.h"

namespace cairn {
namespace {

using Json = nlohmann::ordered_json;

// The limit of numbers in one answer.
constexpr int64_t kMostValuesShown = 100000;

// A number is the key itself; any other text ("C3:68fd1e64") is hashed as the data readers hash it.
int64_t KeyFromText(absl::string_view text) {
  int64_t key = 0;
  return absl::SimpleAtoi(text, &key) ? key : static_cast<int64_t>(HashBytes(text));
}

absl::StatusOr<VariableSpec> FindVariable(const std::vector<VariableSpec>& specs,
                                          const std::string& name, const std::string& job) {
  std::vector<absl::string_view> names;
  for (const VariableSpec& spec : specs) {
    if (spec.name == name) return spec;
    names.push_back(spec.name);
  }
  return NotFound("job ", job, " has no variable '", name, "'", DidYouMean(name, names),
                  "; cairnctl inspect lists ", names.size());
}

// The rows to read, and the number of values per row.
struct Selected {
  Part part = Part::kWhole;
  std::vector<int64_t> ids;
  int64_t rows = 0;
  int64_t width = 0;
};

absl::StatusOr<Selected> Select(const VariableSpec& spec, const std::vector<std::string>& keys) {
  Selected selected;
  const bool table = spec.kind == VariableKind::kEmbedding;
  const int64_t rows = spec.shape.empty() ? 1 : spec.shape.front();
  selected.width = table ? spec.shape.front() : RowWidth(spec.shape);
  if (keys.empty() && table) {
    return InvalidArgument(spec.name, " is an embedding table: name its keys, as in 'cairnctl get ",
                           spec.name, " 17'; cairnctl export writes all rows");
  }
  for (const std::string& text : keys) {
    int64_t row = 0;
    if (table) {
      selected.ids.push_back(KeyFromText(text));
    } else if (absl::SimpleAtoi(text, &row) && row >= 0 && row < rows) {
      selected.ids.push_back(row);
    } else {
      return InvalidArgument("'", text, "' is no row of ", spec.name, ", which has ", rows,
                             " rows from 0 on");
    }
  }
  selected.part = keys.empty() ? Part::kWhole : table ? Part::kKeys : Part::kRows;
  selected.rows = keys.empty() ? rows : static_cast<int64_t>(keys.size());
  if (selected.width > 0 && selected.rows > kMostValuesShown / selected.width) {
    return InvalidArgument(selected.rows, " rows of ", selected.width,
                           " numbers are more than the ", kMostValuesShown,
                           " of one answer: name rows, or use cairnctl export");
  }
  return selected;
}

// Reads a value of `dtype` at `at`, which may be unaligned.
Json NumberOf(DType dtype, const std::byte* at) {
  float as_float = 0;
  if (Is16Bit(dtype)) ToFloat32(dtype, at, 1, &as_float);
  Json number = as_float;
  if (Is16Bit(dtype)) return number;
  WithNumericType(dtype, [&](auto value) {
    std::memcpy(&value, at, sizeof value);
    number = value;
  });
  return number;
}

std::string NumberText(const Json& number) {
  return number.is_number_float() ? absl::StrFormat("%.7g", number.get<double>()) : number.dump();
}

// JSON has no infinity and no NaN; they become strings.
Json JsonNumber(const Json& number) {
  if (!number.is_number_float() || std::isfinite(number.get<double>())) return number;
  return NumberText(number);
}

Answer Show(const VariableSpec& spec, const GetOptions& options, const Selected& selected,
            const std::vector<std::byte>& values) {
  Answer answer;
  const size_t number_bytes = DTypeBytes(spec.dtype);
  Json rows = Json::array();
  TextTable table({selected.part == Part::kKeys ? "key" : "row", "values"});
  for (int64_t r = 0; r < selected.rows; ++r) {
    const int64_t id = selected.ids.empty() ? r : selected.ids[static_cast<size_t>(r)];
    Json numbers = Json::array();
    std::vector<std::string> texts;
    for (int64_t c = 0; c < selected.width; ++c) {
      const size_t at = static_cast<size_t>(r * selected.width + c) * number_bytes;
      const Json number = NumberOf(spec.dtype, values.data() + at);
      texts.push_back(NumberText(number));
      numbers.push_back(JsonNumber(number));
    }
    table.Add({absl::StrCat(id), absl::StrJoin(texts, " ")});
    rows.push_back(
        {{selected.part == Part::kKeys ? "key" : "row", id}, {"values", std::move(numbers)}});
  }
  answer.json = {{"variable", spec.name},
                 {"kind", spec.kind == VariableKind::kEmbedding ? "embedding" : "dense"},
                 {"dtype", std::string(DTypeName(spec.dtype))},
                 {"shape", spec.shape},
                 {"slot", options.slot},
                 {"rows", std::move(rows)}};
  answer.text = absl::StrCat(spec.name, options.slot.empty() ? "" : ", slot ", options.slot, ", ",
                             DTypeName(spec.dtype), " [", absl::StrJoin(spec.shape, ", "), "]\n",
                             table.Text());
  return answer;
}

}  // namespace

absl::StatusOr<Answer> RunGet(const GetOptions& options) {
  ASSIGN_OR_RETURN(Target target, ResolveOnlyJob(options.target));
  target.LearnMembers().IgnoreError();
  const Deadline deadline = Deadline::In(target.timeout);
  ASSIGN_OR_RETURN(const std::unique_ptr<PsClient> client,
                   target.ConnectClient(options.local_transport));
  ASSIGN_OR_RETURN(const std::vector<VariableSpec> specs, client->Describe(deadline));
  ASSIGN_OR_RETURN(const VariableSpec spec, FindVariable(specs, options.variable, target.job));
  ASSIGN_OR_RETURN(const Selected selected, AsBadInput(Select(spec, options.keys)));
  std::vector<std::byte> values(static_cast<size_t>(selected.rows * selected.width) *
                                DTypeBytes(spec.dtype));
  const PullTarget pull{.variable = spec.name,
                        .part = selected.part,
                        .ids = selected.ids,
                        .out = absl::MakeSpan(values),
                        .slot = options.slot};
  RETURN_IF_ERROR(client->Pull({&pull, 1}, deadline));
  return Show(spec, options, selected, values);
}

}  // namespace cairn
