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

  bool Next(std::string* bytes, RowPlace* place) override {
    absl::string_view line;
    for (; wait_ > 0; --wait_) {
      if (!NextLine(&line)) return false;
    }
    wait_ = shard_.workers - 1;
    if (!NextLine(&line)) return false;
    bytes->append(line.data(), line.size());
    bytes->push_back('\n');
    *place = {next_file_ - 1, reader_->line_number()};
    return true;
  }

  absl::Status Decode(absl::string_view bytes, const RowPlace& place, Batch* batch) const override {
    const absl::string_view line = bytes.substr(0, bytes.size() - 1);
    if (IsQuoted(line)) return DecodeQuoted(line, place, batch);
    LineError error;
    if (parser_->Parse(line, batch, &error)) return absl::OkStatus();
    return Malformed(place, error.at - line.data(), error);
  }

 private:
  bool IsQuoted(absl::string_view line) const {
    return parser_->quoted_separator() != 0 &&
           std::memchr(line.data(), '"', line.size()) != nullptr;
  }

  absl::Status DecodeQuoted(absl::string_view line, const RowPlace& place, Batch* batch) const {
    QuotedLine quoted;
    LineError error;
    if (!quoted.Read(line, parser_->quoted_separator(), &error)) {
      return Malformed(place, error.at - line.data(), error);
    }
    if (parser_->Parse(quoted.text(), batch, &error)) return absl::OkStatus();
    return Malformed(place, quoted.Origin(error.at) - line.data(), error);
  }

  // `offset`: in the line.
  absl::Status Malformed(const RowPlace& place, ptrdiff_t offset, const LineError& error) const {
    return InvalidArgument(paths_[place.file], ":", place.at, ":", offset + 1, ": ",
                           PrintableText(error.what), place.at == 1 ? error.in_first_line : "");
  }

  bool IsHeader(absl::string_view line) const {
    if (!IsQuoted(line)) return parser_->IsHeader(line);
    QuotedLine quoted;
    LineError ignored;  // names may contain any bytes
    quoted.Read(line, parser_->quoted_separator(), &ignored);
    return parser_->IsHeader(quoted.text());
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

  const std::vector<std::string> paths_;
  const RowShard shard_;
  const std::unique_ptr<LineParser> parser_;
  std::unique_ptr<LineReader> reader_;  // null: no files
  size_t next_file_ = 0;
  bool first_line_ = true;
  int64_t wait_ = 0;  // rows of other workers before this worker's next
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
