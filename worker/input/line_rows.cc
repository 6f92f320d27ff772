#include "worker/input/line_rows.h"

#include <cstddef>
#include <cstring>
#include <utility>

#include "common/errors.h"
#include "common/printable_text.h"
#include "common/status.h"
#include "worker/input/line_reader.h"
#include "worker/input/quoted_cells.h"

namespace cairn {
namespace {

class LineRows : public RowSource {
 public:
  LineRows(std::vector<std::string> paths, RowShard shard, std::unique_ptr<LineParser> parser)
      : paths_(std::move(paths)), shard_(shard), parser_(std::move(parser)) {}

  const Schema& schema() const override { return parser_->schema(); }
  const absl::Status& status() const override { return status_; }
  double epoch_share() const override {
    if (reader_ == nullptr) return 1;
    return (static_cast<double>(next_file_ - 1) + reader_->share()) /
           static_cast<double>(paths_.size());
  }

  absl::Status Rewind(int64_t) override {
    next_file_ = 0;
    wait_ = shard_.worker;
    reader_.reset();
    if (!paths_.empty()) OpenNext();
    return status_;
  }

  bool Append(Batch* batch) override {
    absl::string_view line;
    if (!NextOwnLine(&line)) return false;
    if (IsQuoted(line)) return AppendQuoted(line, batch);
    if (parser_->Parse(line, batch, &error_)) return true;
    return Refuse(error_.at - line.data());
  }

  bool Skip() override {
    absl::string_view line;
    return NextOwnLine(&line);
  }

 private:
  bool IsQuoted(absl::string_view line) const {
    return parser_->quoted_separator() != 0 &&
           std::memchr(line.data(), '"', line.size()) != nullptr;
  }

  bool AppendQuoted(absl::string_view line, Batch* batch) {
    if (!quoted_.Read(line, parser_->quoted_separator(), &error_)) {
      return Refuse(error_.at - line.data());
    }
    if (parser_->Parse(quoted_.text(), batch, &error_)) return true;
    return Refuse(quoted_.Origin(error_.at) - line.data());
  }

  // `at`: offset in the line.
  bool Refuse(ptrdiff_t at) {
    status_ = InvalidArgument(reader_->path(), ":", reader_->line_number(), ":", at + 1, ": ",
                              PrintableText(error_.what));
    return false;
  }

  bool IsHeader(absl::string_view line) {
    if (!IsQuoted(line)) return parser_->IsHeader(line, reader_->path());
    LineError ignored;  // names may contain any bytes
    quoted_.Read(line, parser_->quoted_separator(), &ignored);
    return parser_->IsHeader(quoted_.text(), reader_->path());
  }

  bool OpenNext() {
    absl::StatusOr<std::unique_ptr<LineReader>> reader = LineReader::Open(paths_[next_file_++]);
    if (!reader.ok()) {
      status_ = reader.status();
      return false;
    }
    reader_ = *std::move(reader);
    first_line_ = true;
    return true;
  }

  // Reads the next line that is a row, of any worker.
  bool NextLine(absl::string_view* line) {
    for (;;) {
      if (reader_ == nullptr || !status_.ok()) return false;
      if (!reader_->Next(line)) {
        status_ = reader_->status();
        if (!status_.ok() || next_file_ == paths_.size() || !OpenNext()) return false;
        continue;
      }
      if (IsBlankLine(*line)) continue;
      if (!first_line_) return true;
      first_line_ = false;
      if (!IsHeader(*line)) return true;
    }
  }

  bool NextOwnLine(absl::string_view* line) {
    for (; wait_ > 0; --wait_) {
      if (!NextLine(line)) return false;
    }
    wait_ = shard_.workers - 1;
    return NextLine(line);
  }

  const std::vector<std::string> paths_;
  const RowShard shard_;
  const std::unique_ptr<LineParser> parser_;
  std::unique_ptr<LineReader> reader_;  // null: no files
  size_t next_file_ = 0;
  bool first_line_ = true;
  int64_t wait_ = 0;  // rows of other workers before this worker's next
  LineError error_;
  QuotedLine quoted_;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RowSource>> MakeLineRows(std::vector<std::string> paths,
                                                        RowShard shard,
                                                        std::unique_ptr<LineParser> parser) {
  auto rows = std::make_unique<LineRows>(std::move(paths), shard, std::move(parser));
  RETURN_IF_ERROR(rows->Rewind(0));
  return rows;
}

}  // namespace cairn
