// A batch that ignores everything; tests override the methods that they observe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "storage/stripe_store.h"

namespace cairn {

class EmptyBatch : public StripeBatch {
 public:
  void SetWatermarks(absl::Span<const Watermark>) override {}
  void PutImage(absl::Span<const absl::string_view>) override {}
  void PutRow(int64_t, absl::string_view) override {}
  void PutCold(int64_t, absl::string_view) override {}
  void PutGone(int64_t) override {}
  void SetColdCount(int64_t) override {}
  void PutWaiting(uint32_t, absl::string_view) override {}
  void PutAges(absl::string_view) override {}
  void DropCold(int64_t) override {}
  bool wants_every_row() const override { return false; }
  void Settle() override {}
  size_t bytes() const override { return 0; }
};

}  // namespace cairn
