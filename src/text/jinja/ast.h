// The syntax tree of a template. One struct for expressions and one for statements, told apart by `kind`: the tree is
// read by one evaluator only and small structs with named parts keep that evaluator short.
// Thread-safety: immutable after parsing, shared by all renderings.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace choral::text::jinja {

struct Builtin;
struct Expr;
struct Stmt;
using ExprPtr = std::unique_ptr<Expr>;
using Body = std::vector<std::unique_ptr<Stmt>>;

enum class ExprKind : uint8_t {
  kConst,
  kName,
  kTuple,
  kList,
  kDict,
  kAnd,
  kOr,
  kNot,
  kNegate,
  kBinary,
  kConcat,
  kCompare,
  kConditional,
  kAttribute,
  kItem,
  kSlice,
  kCall,
  kFilter,
  kTest,
  kNamespaceRef,
};

enum class Operator : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

struct Expr {
  ExprKind kind = ExprKind::kConst;
  int line = 0;
  int depth = 1;                    // of the tree below, bounded by the parser
  int name = -1;                    // kName, kNamespaceRef: index into Ast::names
  Operator op = Operator::kAdd;     // kBinary
  std::vector<Operator> ops;        // kCompare: one per operand after the first
  Value constant;                   // kConst
  std::string text;                 // kAttribute, kNamespaceRef: attribute; kFilter, kTest: its name
  std::vector<ExprPtr> kids;        // operands in order; kDict: key, value, …; kItem: subject, key; kSlice: subject, start,
                                    // stop, step (each may be null); kConditional: test, then, else (may be null);
                                    // kCall: callee; kFilter, kTest: subject (null in a filter block)
  std::vector<ExprPtr> positional;  // arguments of kCall, kFilter, kTest
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr spread;                    // *args
  const Builtin* builtin = nullptr;  // kFilter, kTest; null: an unknown name on a path that may never run
};

enum class StmtKind : uint8_t { kOutput, kIf, kFor, kSet, kSetBlock, kMacro, kFilterBlock, kScope, kBreak, kContinue };

struct Stmt {
  StmtKind kind = StmtKind::kOutput;
  int line;
  std::string text;                                // kOutput: the data, when `expr` is null; kMacro: its name
  ExprPtr expr;                                    // kOutput; kSet: value; kFor: iterable; filter of the block kinds
  ExprPtr target;                                  // kSet, kSetBlock, kFor
  ExprPtr test;                                    // kFor … if
  int name = -1;                                   // kMacro
  std::vector<int> parameters;                     // kMacro
  std::vector<ExprPtr> defaults;                   // kMacro: of the last parameters
  std::vector<std::pair<ExprPtr, Body>> branches;  // kIf: (test, body)…
  Body body;
  Body else_body;  // kIf, kFor
};

struct Ast {
  Body body;
  std::vector<std::string> names;  // the first is "loop"
};
constexpr int kLoopName = 0;

}  // namespace choral::text::jinja
