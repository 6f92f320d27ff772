// The records of one file: lines, TFRecord, fixed length.
#include <glob.h>

#include <utility>

#include "common/errors.h"
#include "common/status.h"
#include "worker/input/dataset/record_file.h"
#include "worker/input/dataset/step_node.h"
#include "worker/input/line_reader.h"

namespace cairn {
namespace {

Tensor Text(std::string text) {
  std::vector<std::string> one;
  one.push_back(std::move(text));
  return Tensor::Texts({}, std::move(one));
}

class FileNode : public SourceNode {
 public:
  explicit FileNode(std::string file)
      : SourceNode(ElementSpec{TensorSpec::Texts(Shape{})}), file_(std::move(file)) {}
  int64_t cardinality() const override { return kUnknownCardinality; }

 protected:
  const std::string& file() const { return file_; }

 private:
  const std::string file_;
};

class TextLinesNode : public FileNode {
 public:
  using FileNode::FileNode;
  std::string name() const override { return "TextLine"; }
  absl::StatusOr<IteratorPtr> MakeIterator(const IterationContext& context) const override {
    ASSIGN_OR_RETURN(auto lines, LineReader::Open(file()));
    return IterateBy([lines = std::move(lines)](Element* element) -> absl::StatusOr<bool> {
      absl::string_view line;
      if (!lines->Next(&line)) {
        RETURN_IF_ERROR(lines->status());
        return false;
      }
      element->assign(1, Text(std::string(line)));
      return true;
    });
  }
};

class TFRecordsNode : public FileNode {
 public:
  TFRecordsNode(std::string file, Compression compression)
      : FileNode(std::move(file)), compression_(compression) {}
  std::string name() const override { return "TFRecord"; }
  absl::StatusOr<IteratorPtr> MakeIterator(const IterationContext& context) const override {
    ASSIGN_OR_RETURN(auto opened, RecordFile::Open(file(), compression_));
    return IterateBy([opened = std::move(opened),
                      damage = absl::Status()](Element* element) mutable -> absl::StatusOr<bool> {
      // After a corrupt record the next record's start cannot be found.
      RETURN_IF_ERROR(damage);
      std::string record;
      absl::StatusOr<bool> more = ReadTFRecord(opened.get(), &record);
      damage = more.status();
      if (more.ok() && *more) element->assign(1, Text(std::move(record)));
      return more;
    });
  }

 private:
  const Compression compression_;
};

class FixedRecordsNode : public FileNode {
 public:
  FixedRecordsNode(std::string file, int64_t record_bytes, int64_t header_bytes,
                   int64_t footer_bytes)
      : FileNode(std::move(file)),
        record_bytes_(record_bytes),
        header_bytes_(header_bytes),
        footer_bytes_(footer_bytes) {}
  std::string name() const override { return "FixedLengthRecord"; }
  absl::StatusOr<IteratorPtr> MakeIterator(const IterationContext& context) const override {
    ASSIGN_OR_RETURN(auto opened, RecordFile::Open(file(), Compression::kNone));
    const int64_t file_bytes = opened->file_bytes();
    const int64_t between = file_bytes - header_bytes_ - footer_bytes_;
    if (between < 0 || between % record_bytes_ != 0) {
      return InvalidArgument(file(), ": of its ", file_bytes, " bytes, a header of ", header_bytes_,
                             " and a footer of ", footer_bytes_,
                             " leave no whole number of records of ", record_bytes_, " bytes");
    }
    RETURN_IF_ERROR(opened->SkipTo(header_bytes_));
    return IterateBy([file = std::move(opened), left = between / record_bytes_,
                      record_bytes = static_cast<size_t>(record_bytes_)](
                         Element* element) mutable -> absl::StatusOr<bool> {
      if (left == 0) return false;
      std::string record(record_bytes, '\0');
      ASSIGN_OR_RETURN(const size_t read, file->Read(record.data(), record.size()));
      if (read < record.size()) {
        return DataLoss(file->path(), ": ends at byte ", file->offset(), ", inside a record of ",
                        record_bytes, " bytes; it was cut meanwhile");
      }
      --left;
      element->assign(1, Text(std::move(record)));
      return true;
    });
  }

 private:
  const int64_t record_bytes_;
  const int64_t header_bytes_;
  const int64_t footer_bytes_;
};

DatasetFunction FileReader(std::function<NodePtr(std::string)> open) {
  DatasetFunction reader([open = std::move(open)](const Element& name) {
    if (name.size() != 1 || !name[0].is_text() || name[0].elements() != 1) {
      return Dataset::FromError(absl::InvalidArgumentError(
          "a reader of files takes elements of one text, the name of a file; found others"));
    }
    return Dataset::FromNode(open(name[0].texts()[0]));
  });
  reader.reads_files = true;
  reader.spec = ElementSpec{TensorSpec::Texts(Shape{})};
  return reader;
}

}  // namespace

Dataset Dataset::FromFiles(std::vector<std::string> files) {
  const auto count = static_cast<int64_t>(files.size());
  return FromTensorSlices({Tensor::Texts({count}, std::move(files))});
}

Dataset Dataset::ListFiles(const std::string& pattern, std::optional<ShuffleOptions> shuffle) {
  glob_t found{};
  const int result = ::glob(pattern.c_str(), GLOB_ERR, nullptr, &found);
  std::vector<std::string> files(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (result == GLOB_NOMATCH || (result == 0 && files.empty())) {
    return FromError(NotFound("ListFiles: no file matches ", pattern));
  }
  if (result != 0) {
    return FromError(Unavailable("ListFiles: a directory of ", pattern, " cannot be read"));
  }
  const auto count = static_cast<int64_t>(files.size());
  const Dataset names = FromFiles(std::move(files));
  return shuffle.has_value() ? names.Shuffle(count, *shuffle) : names;
}

Dataset Dataset::TextLine(std::vector<std::string> files) {
  return FromFiles(std::move(files)).FlatMap(TextLineReader());
}

Dataset Dataset::TFRecord(std::vector<std::string> files, Compression compression) {
  return FromFiles(std::move(files)).FlatMap(TFRecordReader(compression));
}

Dataset Dataset::FixedLengthRecord(std::vector<std::string> files, int64_t record_bytes,
                                   int64_t header_bytes, int64_t footer_bytes) {
  constexpr char kWho[] = "FixedLengthRecord";
  if (record_bytes < 1) return Refused(kWho, "record_bytes", record_bytes, "1 or more");
  if (header_bytes < 0) return Refused(kWho, "header_bytes", header_bytes, "0 or more");
  if (footer_bytes < 0) return Refused(kWho, "footer_bytes", footer_bytes, "0 or more");
  return FromFiles(std::move(files))
      .FlatMap(FixedLengthRecordReader(record_bytes, header_bytes, footer_bytes));
}

DatasetFunction Dataset::TextLineReader() {
  return FileReader(
      [](std::string file) { return std::make_shared<TextLinesNode>(std::move(file)); });
}

DatasetFunction Dataset::TFRecordReader(Compression compression) {
  return FileReader([compression](std::string file) {
    return std::make_shared<TFRecordsNode>(std::move(file), compression);
  });
}

DatasetFunction Dataset::FixedLengthRecordReader(int64_t record_bytes, int64_t header_bytes,
                                                 int64_t footer_bytes) {
  return FileReader([record_bytes, header_bytes, footer_bytes](std::string file) {
    return std::make_shared<FixedRecordsNode>(std::move(file), record_bytes, header_bytes,
                                              footer_bytes);
  });
}

}  // namespace cairn
