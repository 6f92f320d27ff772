// Any text becomes a bounded tree with positions, or is refused.
#include "common/config/config_node.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/write_all.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_dir.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Refusal(absl::string_view text) {
  const absl::StatusOr<ConfigNode> tree = ParseTree(text, "t.yaml");
  EXPECT_EQ(tree.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(tree.status().message());
}

std::string Repeated(absl::string_view piece, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text.append(piece.data(), piece.size());
  return text;
}

TEST(Tree, ValuesKnowTheirLines) {
  const auto tree = ParseTree("a: 1\nb:\n  c: [x,\n    \"5\"]\n  d:\n", "t.yaml");
  ASSERT_TRUE(tree.ok()) << tree.status();
  EXPECT_EQ(WhereOf(*tree, "a"), "t.yaml:1");
  const ConfigNode* list = tree->Find("b")->Find("c");
  EXPECT_EQ(list->children[1].where, "t.yaml:4");
  EXPECT_TRUE(list->children[1].quoted);
  EXPECT_FALSE(list->children[0].quoted);
  EXPECT_EQ(WhereOf(*tree, "b.d"), "t.yaml:5");
  EXPECT_EQ(WhereOf(*tree, "b.missing.deep"), "t.yaml:3");
}

TEST(Tree, EmptyTextIsAnEmptyNode) {
  EXPECT_EQ(ParseTree("", "t")->kind, ConfigNode::Kind::kEmpty);
  EXPECT_EQ(ParseTree("# nothing\n", "t")->kind, ConfigNode::Kind::kEmpty);
}

TEST(Tree, AliasesAreCopies) {
  const auto tree = ParseTree("a: &x {k: 1}\nb: *x\n", "t");
  ASSERT_TRUE(tree.ok()) << tree.status();
  EXPECT_EQ(tree->Find("b")->Find("k")->text, "1");
}

TEST(Tree, InvalidTextIsRefusedWithItsPosition) {
  EXPECT_THAT(Refusal("a: 1\nb: [1, 2\n"), HasSubstr("not valid YAML"));
  EXPECT_EQ(Refusal("a: 1\nb: 2\na: 3"), "t.yaml:3: key 'a' is given twice");
  EXPECT_EQ(Refusal("a: 1\n---\nb: 2"),
            "t.yaml:2: a second YAML document begins; a configuration has only one");
  EXPECT_EQ(Refusal("{[1, 2]: 3}"), "t.yaml:1: a key must be plain text");
  EXPECT_EQ(Refusal("a: 1\nb: \x04 2"),
            "t.yaml:2: byte 0x04 is a control character; a configuration is text");
  EXPECT_EQ(Refusal("a: \xff"), "t.yaml:1: byte 0xff is not UTF-8; a configuration is text");
}

TEST(Tree, AnIndentingTabIsReported) {
  constexpr absl::string_view kTab =
      ": not valid YAML: the line is indented with a tab; indent with spaces";
  EXPECT_EQ(Refusal("model:\n\ttype: linear\n"), absl::StrCat("t.yaml:2", kTab));
  EXPECT_EQ(Refusal("a:\n  b: 1\n  \tc: 2\n"), absl::StrCat("t.yaml:3", kTab));
  EXPECT_EQ(Refusal("a:\n\t- 1\n\t- 2\n"), absl::StrCat("t.yaml:2", kTab));
  // Elsewhere a tab is white space, and other mistakes get their own messages.
  EXPECT_EQ(ParseTree("a:\t1\n", "t")->Find("a")->text, "1");
  EXPECT_THAT(Refusal("a:\t[1\n"), Not(HasSubstr("tab")));
}

TEST(Tree, DeepNestingIsRefused) {
  EXPECT_THAT(Refusal(Repeated("[", 40) + Repeated("]", 40)), HasSubstr("nested more than 32"));
  EXPECT_THAT(Refusal(Repeated("[", 5000)), HasSubstr("nested more than 32"));
  EXPECT_THAT(Refusal(Repeated("{a: ", 5000)), HasSubstr("nested more than 32"));
  EXPECT_FALSE(ParseTree(Repeated("[", 500'000), "t").ok());
  EXPECT_FALSE(ParseTree(Repeated("{a: ", 200'000), "t").ok());
  EXPECT_FALSE(ParseTree(Repeated("- ", 400'000), "t").ok());
}

// Nine aliases of nine aliases …: a few hundred bytes that expand to more than 10^9 values.
TEST(Tree, AliasBombsAreRefused) {
  std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 10; ++i) {
    absl::StrAppend(&text, "a", i, ": &a", i, " [");
    for (int j = 0; j < 9; ++j) absl::StrAppend(&text, j == 0 ? "" : ", ", "*a", i - 1);
    absl::StrAppend(&text, "]\n");
  }
  EXPECT_THAT(Refusal(text), HasSubstr("more than 100000 values"));
  const std::string big =
      absl::StrCat("a: &a ", std::string(500'000, 'x'), "\nb: [", Repeated("*a, ", 1000), "]");
  EXPECT_THAT(Refusal(big), HasSubstr("bytes of text"));
  EXPECT_EQ(Refusal("&a [*a]"), "t.yaml:1: an alias is inside its own anchor");
}

// yaml-cpp 0.7's LoadAll appends documents for this text until memory is exhausted.
TEST(Tree, ATextThatStartsWithACommaEnds) {
  EXPECT_FALSE(ParseTree(", \"a\": {\"{\"b\"z {\"c\": [\"d\"]}f\": [\"e\"], \"g", "t").ok());
}

TEST(Tree, MoreThanAMebibyteIsRefused) {
  EXPECT_THAT(Refusal(std::string(kMaxConfigBytes + 1, 'x')), HasSubstr("at most 1048576"));
}

TEST(File, ATooLargeFileAFolderOrAMissingFileIsRefused) {
  const TempDir folder;
  EXPECT_THAT(std::string(ReadConfigFile(folder.path()).status().message()),
              HasSubstr("is a directory"));
  EXPECT_EQ(ReadConfigFile(folder.Join("none")).status().code(), absl::StatusCode::kNotFound);
  const std::string pipe = folder.Join("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(std::string(ReadConfigFile(pipe, absl::Milliseconds(1)).status().message()),
              HasSubstr("whose writer has not closed it"));
  // An endless file must not be read to its end.
  EXPECT_EQ(ReadConfigFile("/dev/zero")->size(), kMaxConfigBytes + 1);
}

// Such as <(command) in a shell.
TEST(File, APipeIsReadToItsEnd) {
  int files[2];
  ASSERT_EQ(pipe(files), 0);
  std::thread writer([file = files[1]] {
    for (const absl::string_view part : {"a: 1\n", "b: 2\n"}) WriteAll(file, part);
    close(file);
  });
  const auto text = ReadConfigFile(absl::StrCat("/proc/self/fd/", files[0]));
  writer.join();
  close(files[0]);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, "a: 1\nb: 2\n");
}

absl::StatusOr<ConfigNode> Overridden(absl::string_view text,
                                      std::initializer_list<const char*> assignments) {
  absl::StatusOr<ConfigNode> tree = ParseTree(text, "t.yaml");
  for (const char* assignment : assignments) {
    const absl::Status status = ApplyOverride(assignment, &*tree);
    if (!status.ok()) return status;
  }
  return tree;
}

TEST(Override, ReplacesAddsAndAppends) {
  const auto tree = Overridden("a: {b: 1}\nl: [x, y]\n", {"a.b=2", "a.c=[3, 4]", "new.deep.key=5",
                                                          "l.1=z", "l.2=w", "e.f=a=b"});
  ASSERT_TRUE(tree.ok()) << tree.status();
  EXPECT_EQ(tree->Find("a")->Find("b")->text, "2");
  EXPECT_EQ(tree->Find("a")->Find("c")->children[1].text, "4");
  EXPECT_EQ(tree->Find("new")->Find("deep")->Find("key")->text, "5");
  EXPECT_EQ(tree->Find("l")->children[1].text, "z");
  EXPECT_EQ(tree->Find("l")->children[2].text, "w");
  EXPECT_EQ(tree->Find("e")->Find("f")->text, "a=b");
  EXPECT_EQ(WhereOf(*tree, "a.b"), "--set");
  EXPECT_EQ(WhereOf(*tree, "a"), "t.yaml:1");
  // A section that an override creates has the file's position, because the file lacks its other
  // keys.
  EXPECT_EQ(WhereOf(*tree, "new.deep.key"), "--set");
  EXPECT_EQ(WhereOf(*tree, "new.deep.other"), "t.yaml:1");
  EXPECT_EQ(tree->Find("new")->key_where, "--set");
}

TEST(Override, AWholeSectionIsReplacedNotMerged) {
  const auto tree = Overridden("a: {b: 1, c: 2}\n", {"a={c: 3}"});
  EXPECT_EQ(tree->Find("a")->Find("b"), nullptr);
}

TEST(Override, WorksOnAnEmptyFile) {
  const auto tree = Overridden("", {"a.b=1"});
  EXPECT_EQ(tree->Find("a")->Find("b")->text, "1");
  EXPECT_EQ(WhereOf(*tree, "c"), "t.yaml");
}

TEST(Override, InvalidOverridesAreRefused) {
  const auto refusal = [](const char* assignment) {
    return std::string(Overridden("a: 1\nl: [x]\n", {assignment}).status().message());
  };
  EXPECT_THAT(refusal("a"), HasSubstr("expected key.path=value"));
  EXPECT_THAT(refusal("=1"), HasSubstr("expected key.path=value"));
  EXPECT_THAT(refusal("a..b=1"), HasSubstr("expected key.path=value"));
  EXPECT_THAT(refusal("a.b=1"), HasSubstr("a is \"1\", which has no keys"));
  EXPECT_THAT(refusal("l.5=1"), HasSubstr("l is a list; expected a number from 0 to 1"));
  EXPECT_THAT(refusal("l.x=1"), HasSubstr("found 'x'"));
  EXPECT_THAT(refusal("a={"), HasSubstr("--set a:1:"));
  EXPECT_THAT(refusal("a=[*.csv]"),
              AllOf(HasSubstr("--set a:1:"),
                    HasSubstr("text that starts with * or & needs quotes, as in \"*.csv\"")));
}

}  // namespace
}  // namespace cairn
