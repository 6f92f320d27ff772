#include "common/variables/variable_spec.h"

#include <algorithm>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/errors.h"
#include "common/status.h"

namespace cairn {
namespace {

constexpr size_t kMaxNameBytes = 512;
constexpr size_t kMaxBuckets = 65536;
// More axes are a mistake; NumPy's limit is 32 too.
constexpr size_t kMaxAxes = 32;
// Limit for the bytes of a row's values: a message carries at least one row, and a payload's length
// is a signed 32-bit integer. Products of row counts and row sizes then fit in 64 bits.
constexpr int64_t kMaxRowBytes = std::numeric_limits<int32_t>::max();

// A map version increases when rows move. This limit keeps it exact in JSON and free of overflow.
constexpr int64_t kMaxMapVersion = int64_t{1} << 53;

template <typename... Parts>
absl::Status Refuse(const VariableSpec& spec, const Parts&... parts) {
  return InvalidArgument("variable \"", spec.name, "\": ", parts...);
}

// Dense variables of size zero are allowed, as in TensorFlow: without rows ([0, 4]) or with rows
// without elements ([3, 0]).
absl::Status CheckShape(const VariableSpec& spec) {
  if (spec.shape.size() > kMaxAxes) {
    return Refuse(spec, "shape has ", spec.shape.size(), " axes, at most ", kMaxAxes, " allowed");
  }
  if (const auto count = ElementCount(spec.shape); !count.ok()) {
    return Refuse(spec, count.status().message());
  }
  const int64_t width = spec.kind == VariableKind::kEmbedding && spec.shape.size() == 1
                            ? spec.shape[0]
                            : RowWidth(spec.shape);
  const auto element_bytes = static_cast<int64_t>(DTypeBytes(spec.dtype));
  if (width <= kMaxRowBytes / element_bytes) return absl::OkStatus();
  return Refuse(spec, "shape ", ShapeText(spec.shape), " has rows of ", width, " elements, ",
                element_bytes, " bytes each; a row has at most ", kMaxRowBytes, " bytes");
}

absl::Status CheckName(const VariableSpec& spec) {
  if (spec.name.empty()) {
    return absl::InvalidArgumentError("a variable's name is empty; it takes 1 to 512 characters");
  }
  if (spec.name.size() > kMaxNameBytes) {
    return InvalidArgument("variable \"", spec.name.substr(0, 40), "…\": its name has ",
                           spec.name.size(), " bytes, at most ", kMaxNameBytes, " are allowed");
  }
  const auto bad = std::ranges::find_if(spec.name, [](char c) {
    return !absl::ascii_isalnum(static_cast<unsigned char>(c)) &&
           absl::string_view("_./-").find(c) == absl::string_view::npos;
  });
  if (bad == spec.name.end()) return absl::OkStatus();
  return Refuse(spec, "a variable's name has byte ",
                static_cast<int>(static_cast<unsigned char>(*bad)), " at position ",
                bad - spec.name.begin(), "; letters, digits and _ . / - are allowed");
}

absl::Status CheckPs(const VariableSpec& spec, absl::string_view field, size_t i, int32_t ps,
                     int32_t ps_count) {
  if (ps >= 0 && ps < ps_count) return absl::OkStatus();
  return Refuse(spec, field, "[", i, "] names ps ", ps, ", outside [0, ", ps_count, ")");
}

absl::Status CheckDense(const VariableSpec& spec, int32_t ps_count) {
  if (!spec.bucket_ps.empty()) {
    return Refuse(spec, "bucket_ps is for embeddings, this one is dense");
  }
  if (!(spec.row_rules == RowRules())) {
    return Refuse(spec, "row_rules are for embeddings, this one is dense");
  }
  if (!(spec.row_storage == RowStorage())) {
    return Refuse(spec, "row_storage is for embeddings, this one is dense: leave it out");
  }
  if (spec.shards.empty()) {
    return Refuse(spec, "shards is empty; a dense variable has at least one");
  }
  const int64_t rows = RowCount(spec.shape);
  int64_t next = 0;
  for (size_t i = 0; i < spec.shards.size(); ++i) {
    const DenseShard& shard = spec.shards[i];
    RETURN_IF_ERROR(CheckPs(spec, "shards", i, shard.ps, ps_count));
    if (shard.first_row != next) {
      return Refuse(spec, "shards[", i, "] begins at row ", shard.first_row, ", expected ", next,
                    ": shards are contiguous and in order");
    }
    if (shard.rows < 0 || shard.rows > rows - next) {
      return Refuse(spec, "shards[", i, "] has ", shard.rows, " rows, allowed is 0 to ",
                    rows - next, ", what is left of ", rows);
    }
    next += shard.rows;
  }
  if (next == rows) return absl::OkStatus();
  return Refuse(spec, "shards hold ", next, " rows, shape ", ShapeText(spec.shape), " has ", rows);
}

absl::Status CheckRules(const VariableSpec& spec) {
  const RowRules& rules = spec.row_rules;
  if (rules.admit_after_pushes < 1 || rules.admit_after_pushes > kMostPushesToAdmit) {
    return Refuse(spec, "admit_after_pushes is ", rules.admit_after_pushes,
                  "; 1 (every key that is pushed) to ", kMostPushesToAdmit, " are allowed");
  }
  if (rules.expire_after_seconds < 0 || rules.expire_after_seconds > kMostSecondsToExpire) {
    return Refuse(spec, "expire_after_seconds is ", rules.expire_after_seconds, "; 0 (never) to ",
                  kMostSecondsToExpire, " are allowed");
  }
  const auto buckets = static_cast<int64_t>(spec.bucket_ps.size());
  if (rules.max_rows == 0 || rules.max_rows >= buckets) return absl::OkStatus();
  return Refuse(spec, "max_rows is ", rules.max_rows, "; 0 (no limit), or ", buckets,
                " (a row a bucket) or more");
}

absl::Status CheckFormat(const VariableSpec& spec, absl::string_view field, RowFormat format,
                         size_t known) {
  const auto number = static_cast<int32_t>(format);
  const auto names = absl::MakeConstSpan(kRowFormatNames);
  if (number >= 0 && static_cast<size_t>(number) < known) return absl::OkStatus();
  const bool has_name = number >= 0 && static_cast<size_t>(number) < names.size();
  return Refuse(spec, "row_storage.", field, " is ",
                has_name ? names[static_cast<size_t>(number)] : absl::StrCat("number ", number),
                "; ", absl::StrJoin(names.first(known), ", "), " are allowed");
}

absl::Status CheckEmbedding(const VariableSpec& spec, int32_t ps_count) {
  if (spec.dtype != DType::kFloat32) {
    return Refuse(spec, "dtype ", DTypeName(spec.dtype), ", but embeddings are float32");
  }
  if (spec.shape.size() != 1 || spec.shape[0] < 1) {
    return Refuse(spec, "shape ", ShapeText(spec.shape), ", but an embedding's is [dim], dim >= 1");
  }
  if (spec.touched_rows != TouchedRows::kPushed) {
    return Refuse(spec, "touched_rows must be 'pushed' for an embedding");
  }
  if (!spec.shards.empty()) return Refuse(spec, "shards are for dense variables, use bucket_ps");
  const size_t buckets = spec.bucket_ps.size();
  if (buckets == 0 || buckets > kMaxBuckets || (buckets & (buckets - 1)) != 0) {
    return Refuse(spec, "bucket_ps has ", buckets, " entries; a power of two from 1 to ",
                  kMaxBuckets, " is allowed");
  }
  for (size_t i = 0; i < buckets; ++i) {
    RETURN_IF_ERROR(CheckPs(spec, "bucket_ps", i, spec.bucket_ps[i], ps_count));
  }
  RETURN_IF_ERROR(CheckFormat(spec, "values", spec.row_storage.values, std::size(kRowFormatNames)));
  RETURN_IF_ERROR(CheckFormat(spec, "slots", spec.row_storage.slots, kSlotFormats));
  return CheckRules(spec);
}

// The number of buckets on each server, in the order of servers: "0: 32, 1: 32".
std::string BucketText(absl::Span<const int32_t> bucket_ps) {
  absl::btree_map<int32_t, int64_t> buckets_of_ps;
  for (const int32_t ps : bucket_ps) ++buckets_of_ps[ps];
  return absl::StrJoin(buckets_of_ps, ", ", absl::PairFormatter(": "));
}

}  // namespace

absl::Status ValidateSpec(const VariableSpec& spec, int32_t ps_count) {
  RETURN_IF_ERROR(CheckName(spec));
  if (spec.kind != VariableKind::kDense && spec.kind != VariableKind::kEmbedding) {
    return Refuse(spec, "kind ", static_cast<int32_t>(spec.kind),
                  " is unknown; 1 (dense) or 2 (embedding)");
  }
  if (spec.touched_rows != TouchedRows::kAll && spec.touched_rows != TouchedRows::kPushed) {
    return Refuse(spec, "touched_rows ", static_cast<int32_t>(spec.touched_rows),
                  " is unknown; 1 (all) or 2 (pushed)");
  }
  const absl::string_view who = "variable \"";
  const std::string context = absl::StrCat(who, spec.name, "\"");
  RETURN_IF_ERROR(Annotate(DTypeFromNumber(static_cast<int32_t>(spec.dtype)).status(), context));
  RETURN_IF_ERROR(CheckShape(spec));
  const bool embedding = spec.kind == VariableKind::kEmbedding;
  RETURN_IF_ERROR(Annotate(ValidateInitializer(spec.initializer, embedding), context));
  RETURN_IF_ERROR(Annotate(Optimizer::Create(spec.optimizer).status(), context));
  if (!IsFloating(spec.dtype) && spec.optimizer.type != "none") {
    return Refuse(spec, "dtype ", DTypeName(spec.dtype), " cannot be updated by optimizer '",
                  spec.optimizer.type, "'; use a floating dtype or optimizer 'none'");
  }
  if (spec.map_version < 1 || spec.map_version > kMaxMapVersion) {
    return Refuse(spec, "map_version is ", spec.map_version, ", must be 1 to ", kMaxMapVersion);
  }
  return embedding ? CheckEmbedding(spec, ps_count) : CheckDense(spec, ps_count);
}

std::string SpecText(const VariableSpec& spec) {
  const bool embedding = spec.kind == VariableKind::kEmbedding;
  std::string text = absl::StrCat("\"", spec.name, "\" ", embedding ? "embedding " : "dense ",
                                  DTypeName(spec.dtype), " ", ShapeText(spec.shape), ", optimizer ",
                                  OptimizerText(spec.optimizer), ", initializer ",
                                  InitializerText(spec.initializer), ", touched_rows ",
                                  spec.touched_rows == TouchedRows::kAll ? "all" : "pushed");
  if (embedding) {
    absl::StrAppend(&text, ", ", spec.bucket_ps.size(), " buckets (ps: buckets) {",
                    BucketText(spec.bucket_ps), "}");
    const RowRules& rules = spec.row_rules;
    if (rules.admit_after_pushes > 1) {
      absl::StrAppend(&text, ", admit_after_pushes ", rules.admit_after_pushes);
    }
    if (rules.expire_after_seconds > 0) {
      absl::StrAppend(&text, ", expire_after_seconds ", rules.expire_after_seconds);
    }
    if (rules.max_rows > 0) absl::StrAppend(&text, ", max_rows ", rules.max_rows);
    if (!(spec.row_storage == RowStorage())) {
      absl::StrAppend(&text, ", row_storage ", RowFormatName(spec.row_storage.values), " (slots ",
                      RowFormatName(spec.row_storage.slots), ")");
    }
  } else {
    absl::StrAppend(&text, ", shards (first row + rows @ ps) {",
                    absl::StrJoin(spec.shards, ", ",
                                  [](std::string* out, const DenseShard& shard) {
                                    absl::StrAppend(out, shard.first_row, "+", shard.rows, "@",
                                                    shard.ps);
                                  }),
                    "}");
  }
  return absl::StrCat(text, ", map version ", spec.map_version);
}

}  // namespace cairn
