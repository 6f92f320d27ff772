#include "worker/strategy/variable_host.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/crash_point.h"
#include "common/errors.h"
#include "common/status.h"
#include "common/variables/variable_map.h"
#include "worker/client/ps_client.h"
#include "worker/ops/tensor_math.h"

namespace cairn {
namespace {

// Doubles represent every integer up to this one, 2^53.
constexpr double kLargestExact = 9007199254740992.0;

bool IsInteger(DType dtype) { return dtype == DType::kInt32 || dtype == DType::kInt64; }

double LargestKept(DType dtype) {
  return dtype == DType::kInt32 ? double{std::numeric_limits<int32_t>::max()} : kLargestExact;
}

// `tensor` in the form in which the servers keep it.
absl::StatusOr<Tensor> Kept(absl::string_view variable, const Tensor& tensor) {
  ASSIGN_OR_RETURN(const Tensor host, HostTensor(tensor));
  if (!IsInteger(tensor.dtype())) return host;
  ASSIGN_OR_RETURN(Tensor kept, CastTensor(host, DType::kFloat64));
  for (const double value : kept.values<double>()) {
    if (std::abs(value) < kLargestExact) continue;
    return InvalidArgument("write of about ", value, " to variable \"", variable,
                           "\": servers keep integers as float64, exact below 2^53; use a float64 "
                           "variable for larger ones");
  }
  return kept;
}

// A tensor from the servers, converted to the variable's dtype.
absl::StatusOr<Tensor> Restored(absl::string_view variable, const Tensor& kept, DType dtype) {
  if (!IsInteger(dtype)) return kept;
  for (const double value : kept.values<double>()) {
    if (std::abs(value) <= LargestKept(dtype) && std::abs(value) < kLargestExact) continue;
    return OutOfRange("read of variable \"", variable, "\": its value ", value,
                      " is outside the range of ", DTypeName(dtype),
                      " that servers keep exactly (below 2^53); assign a "
                      "new value, or use a float64 variable");
  }
  return CastTensor(kept, dtype);
}

absl::Span<const std::byte> BytesOf(const Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.data()), tensor.bytes()};
}

Shape ShapeOf(const VariableSpec& spec, const HostedRows& rows) {
  Shape shape = spec.shape;
  if (rows.rows && !shape.empty()) shape[0] = static_cast<int64_t>(rows.rows->size());
  return shape;
}

// The variable that is 0 from before `spec` is created until its initial value is written: a
// program may be killed in between.
VariableSpec MarkerOf(const VariableSpec& spec) {
  VariableSpec marker{.name = absl::StrCat(spec.name, "/.initialized"), .shape = {}};
  marker.optimizer = PlainUpdates();
  if (!spec.shards.empty()) marker.shards = {{.rows = 1, .ps = spec.shards[0].ps}};
  return marker;
}

bool Contains(absl::Span<const VariableSpec> specs, absl::string_view name) {
  return std::ranges::any_of(specs, [name](const VariableSpec& spec) { return spec.name == name; });
}

// Whether every bit is 0, as in a new variable.
bool IsZero(const Tensor& host) {
  const absl::Span<const std::byte> bytes = BytesOf(host);
  return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
}

PushSource SourceOf(const HostedRows& to, const Tensor& kept) {
  PushSource source{.variable = to.variable, .values = BytesOf(kept)};
  if (to.rows) {
    source.part = Part::kRows;
    source.ids = *to.rows;
  }
  return source;
}

}  // namespace

VariableHost::VariableHost(std::shared_ptr<PsClient> client, absl::Duration timeout)
    : client_(std::move(client)), timeout_(timeout) {}

std::vector<int32_t> VariableHost::servers() const {
  return client_ == nullptr ? std::vector<int32_t>() : client_->servers();
}

int32_t VariableHost::listed_servers() const {
  return client_ == nullptr ? 0 : client_->listed_servers();
}

absl::Status VariableHost::Create(VariableSpec* wanted, const Tensor& initial) {
  if (client_ == nullptr) return absl::InvalidArgumentError("VariableHost: its client is null");
  ASSIGN_OR_RETURN(const std::vector<VariableSpec> there,
                   client_->Describe(Deadline::In(timeout_)));
  KeepPlacement(there, *wanted);
  const VariableSpec& spec = *wanted;
  VariableSpec kept = spec;
  if (IsInteger(spec.dtype)) kept.dtype = DType::kFloat64;
  ASSIGN_OR_RETURN(const Tensor host, HostTensor(initial));
  VariableSpec marker = MarkerOf(spec);
  // A variable without a marker has been written, or was created with zeros.
  const bool has_marker = Contains(there, marker.name);
  if (has_marker) {
    KeepPlacement(there, marker);
  } else if (!Contains(there, spec.name) && !IsZero(host)) {
    RETURN_IF_ERROR(client_->Create({&marker, 1}, Deadline::In(timeout_)));
  } else {
    marker.name.clear();
  }
  CAIRN_CRASH_POINT("host: before a variable is created");
  RETURN_IF_ERROR(client_->Create({&kept, 1}, Deadline::In(timeout_)));
  CAIRN_CRASH_POINT("host: variable created");
  {
    absl::MutexLock lock(&mutex_);
    specs_[spec.name] = spec;
  }
  return marker.name.empty() ? absl::OkStatus() : WriteOnce(spec, marker.name, initial);
}

absl::Status VariableHost::WriteOnce(const VariableSpec& spec, const std::string& marker,
                                     const Tensor& initial) {
  float written = 0;
  const PullTarget target{.variable = marker, .out = AsWritableBytes(absl::MakeSpan(&written, 1))};
  RETURN_IF_ERROR(client_->Pull({&target, 1}, Deadline::In(timeout_)));
  if (written != 0) return absl::OkStatus();
  RETURN_IF_ERROR(Assign({.variable = spec.name}, initial));
  // The marker may be on another server than some of the rows.
  RETURN_IF_ERROR(client_->Flush(Deadline::In(timeout_)));
  CAIRN_CRASH_POINT("host: initial value written");
  written = 1;
  const PushSource source{.variable = marker, .values = AsBytes(absl::MakeConstSpan(&written, 1))};
  return client_->Assign({&source, 1}, Deadline::In(timeout_));
}

absl::StatusOr<Tensor> VariableHost::Read(const HostedRows& from) {
  ASSIGN_OR_RETURN(const VariableSpec spec, Find(from.variable));
  const DType kept = IsInteger(spec.dtype) ? DType::kFloat64 : spec.dtype;
  Tensor values = Tensor::Uninitialized(kept, ShapeOf(spec, from));
  PullTarget target{.variable = from.variable,
                    .out = {static_cast<std::byte*>(values.mutable_data()), values.bytes()}};
  if (from.rows) {
    target.part = Part::kRows;
    target.ids = *from.rows;
  }
  if (values.elements() > 0) RETURN_IF_ERROR(client_->Pull({&target, 1}, Deadline::In(timeout_)));
  return Restored(from.variable, values, spec.dtype);
}

absl::Status VariableHost::Assign(const HostedRows& to, const Tensor& values) {
  ASSIGN_OR_RETURN(const Tensor kept, Checked("assign", to, values));
  if (kept.elements() == 0) return absl::OkStatus();
  const PushSource source = SourceOf(to, kept);
  return client_->Assign({&source, 1}, Deadline::In(timeout_));
}

absl::Status VariableHost::Add(const HostedRows& to, const Tensor& delta, bool subtract) {
  ASSIGN_OR_RETURN(const VariableSpec spec, Find(to.variable));
  if (!(spec.optimizer == PlainUpdates())) {
    return Unimplemented(
        "assign_add or assign_sub of variable \"", to.variable, "\", whose optimizer is ",
        OptimizerText(spec.optimizer),
        ": servers add atomically only to variables without an optimizer; create it "
        "with trainable false, assign it whole, or push a gradient");
  }
  ASSIGN_OR_RETURN(Tensor kept, Checked("add", to, delta));
  if (kept.elements() == 0) return absl::OkStatus();
  if (!subtract) {
    ASSIGN_OR_RETURN(kept, DivideTensor(kept, -1));
  }
  const HostedGradient gradient{.to = to, .values = std::move(kept)};
  return PushKept({&gradient, 1});
}

absl::Status VariableHost::Push(absl::Span<const HostedGradient> gradients) {
  std::vector<HostedGradient> kept;
  for (const HostedGradient& gradient : gradients) {
    ASSIGN_OR_RETURN(Tensor values, Checked("push", gradient.to, gradient.values));
    kept.push_back({.to = gradient.to, .values = std::move(values)});
  }
  return PushKept(kept);
}

absl::StatusOr<VariableSpec> VariableHost::Find(const std::string& name) const {
  absl::MutexLock lock(&mutex_);
  const auto found = specs_.find(name);
  if (found != specs_.end()) return found->second;
  return InvalidArgument("variable \"", name, "\" was not created through this host");
}

absl::StatusOr<Tensor> VariableHost::Checked(absl::string_view method, const HostedRows& to,
                                             const Tensor& values) const {
  ASSIGN_OR_RETURN(const VariableSpec spec, Find(to.variable));
  if (values.is_text() || values.dtype() != spec.dtype || values.shape() != ShapeOf(spec, to)) {
    return InvalidArgument(method, " of variable \"", to.variable, "\": found ", values.TypeText(),
                           ", expected ", DTypeName(spec.dtype), " ", ShapeText(ShapeOf(spec, to)));
  }
  return Kept(to.variable, values);
}

absl::Status VariableHost::PushKept(absl::Span<const HostedGradient> gradients) {
  std::vector<PushSource> sources;
  for (const HostedGradient& gradient : gradients) {
    sources.push_back(SourceOf(gradient.to, gradient.values));
  }
  if (sources.empty()) return absl::OkStatus();
  return client_->Push(sources, "", Deadline::In(timeout_));
}

OptimizerConfig PlainUpdates() { return {.type = "sgd", .learning_rate = ConstantRate(1)}; }

std::unique_ptr<VariableHost> HostOnServers(std::shared_ptr<PsClient> client,
                                            absl::Duration timeout) {
  return std::make_unique<VariableHost>(std::move(client), timeout);
}

}  // namespace cairn
