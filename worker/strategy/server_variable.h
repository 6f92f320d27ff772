// A variable on the parameter servers, or a range of its rows.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/strategy/plain_variable.h"
#include "worker/strategy/variable_host.h"

namespace cairn {

// device() is cpu:0, where values arrive; ps() is the server that holds them.
class ServerVariable : public VariableBase {
 public:
  // Rows [first_row, first_row + traits.shape[0]) of `hosted` if `is_part`, otherwise all of
  // `hosted`. `ps` is the server that holds all of these rows, or -1 if several servers hold them.
  ServerVariable(VariableTraits traits, std::shared_ptr<VariableHost> host, std::string hosted,
                 int32_t ps, int64_t first_row, bool is_part);

  int32_t ps() const { return ps_; }
  const std::string& hosted() const { return hosted_; }

  absl::StatusOr<Tensor> Read() override;
  absl::StatusOr<Tensor> ReadRows(absl::Span<const int64_t> rows) override;
  // Adding and subtracting is atomic, also with concurrent writers.
  absl::Status Write(AssignOp op, const Value& value) override;
  // kUnimplemented: mul, div, min, max, which servers cannot do atomically.
  absl::Status Scatter(ScatterOp op, const IndexedSlices& slices) override;

 private:
  std::vector<int64_t> HostedNumbers(absl::Span<const int64_t> rows) const;
  // All rows of this variable.
  HostedRows All(std::vector<int64_t>* rows) const;

  const std::shared_ptr<VariableHost> host_;
  const std::string hosted_;
  const int32_t ps_;
  const int64_t first_row_;
  const bool is_part_;
};

}  // namespace cairn
