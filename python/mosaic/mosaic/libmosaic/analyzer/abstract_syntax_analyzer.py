"""AbstractSyntaxAnalyzer: which lines of a source file the memory at the peak comes from, as tables.

Needs pandas and tabulate (`pip install mosaic[tables]`); the command
mosaic_per_file_memory_snapshot_analysis needs neither.
"""
import ast
from dataclasses import dataclass
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple, Union

import pandas
from tabulate import tabulate

from mosaic.libmosaic.analyzer.memory_snapshot import MemorySnapshot
from mosaic.libmosaic.utils.data_utils import Frame

_GIB = 1024**3
_KEYS = ['line_numbers', 'line_content', 'class_names', 'function_names']
_COLUMNS = [*_KEYS, 'stack_trace', 'memory_utilization']
_BY_LINE = ['line_content', 'line_numbers', 'class_names', 'function_names']
_SIDES = ('_df1', '_df2')


@dataclass
class CodeContext:
    """A line of a source file, and the class and function that it is in."""
    line_number: int
    line_content: str
    class_name: Optional[str] = None
    function_name: Optional[str] = None


def _base_name(path: str) -> str:
    return path.rpartition('/')[2]


class ASTCodeParser:
    """The outline of a source file, from its path or its text: top-level functions, and top-level
    classes with their methods. Nothing nested deeper has a name."""

    def __init__(self, model_path: Optional[str] = None, source_content: Optional[str] = None,
                 file_name: Optional[str] = None) -> None:
        if (model_path is None) == (source_content is None):
            raise ValueError('one of model_path and source_content is needed')
        self.model_path = model_path
        self.file_name = file_name or (_base_name(model_path) if model_path else None)
        if model_path is not None:
            with open(model_path, 'r') as file:  # pylint: disable=unspecified-encoding
                source_content = file.read()
        self.source_code = source_content or ''
        self.lines = self.source_code.splitlines()
        self.line_to_context: Dict[int, CodeContext] = {}
        for node in ast.parse(self.source_code).body:
            if isinstance(node, ast.ClassDef):
                self._mark(node, node.name, None)
                for inner in node.body:
                    if isinstance(inner, ast.FunctionDef):
                        self._mark(inner, node.name, inner.name)
            elif isinstance(node, ast.FunctionDef):
                self._mark(node, None, node.name)

    def _mark(self, node: Any, class_name: Optional[str], function_name: Optional[str]) -> None:
        last = min(node.end_lineno or len(self.lines), len(self.lines))
        for number in range(node.lineno, last + 1):
            self.line_to_context[number] = CodeContext(number, self.lines[number - 1].strip(),
                                                       class_name, function_name)

    def get_context_for_line(self, line_number: int) -> Optional[CodeContext]:
        """What is at a line, from 1; None outside of functions and classes."""
        return self.line_to_context.get(line_number)

    @staticmethod
    def _spans(pairs: Iterable[Tuple[Optional[str], int]]) -> Dict[str, Dict[str, Any]]:
        """First and last line of each name."""
        spans: Dict[str, Dict[str, Any]] = {}
        for name, line in pairs:
            if name:
                span = spans.setdefault(name, {'name': name, 'start_line': line, 'end_line': line})
                span['start_line'] = min(span['start_line'], line)
                span['end_line'] = max(span['end_line'], line)
        return spans

    def get_classes(self) -> Dict[str, Dict[str, Any]]:
        """Each class: its name, first and last line, and its functions by name."""
        contexts = list(self.line_to_context.values())
        classes = self._spans((one.class_name, one.line_number) for one in contexts)
        for name, span in classes.items():
            span['functions'] = self._spans((one.function_name, one.line_number)
                                            for one in contexts if one.class_name == name)
        return classes

    def get_functions(self) -> Dict[str, Dict[str, Any]]:
        """Each top-level function: its name, first and last line."""
        return self._spans((one.function_name, one.line_number)
                           for one in self.line_to_context.values() if not one.class_name)


def _fields(frame: Union[Dict[str, Any], Frame]) -> Tuple[str, str, Any]:
    """(function, file, line) of a frame in either form."""
    if isinstance(frame, Frame):
        return frame.name, frame.filename, frame.line
    return frame.get('name', ''), frame.get('filename', ''), frame.get('line')


class AbstractSyntaxAnalyzer:
    """Analyses the peak of a snapshot: the groups with frames in a source file by their lines, the
    others by their stacks. The source is read from `file_path`, or given as `file_name` and
    `file_content`."""

    def __init__(self, memory_snapshot: MemorySnapshot, file_path: Optional[str] = None,
                 file_name: Optional[str] = None, file_content: Optional[str] = None,
                 allocation: str = '', action: str = 'alloc') -> None:
        if file_path is None and (file_name is None or file_content is None):
            raise ValueError('Either file_path must be provided, or both file_name and file_content')
        if file_path is not None and (file_name is not None or file_content is not None):
            raise ValueError('Cannot provide both file_path and file_name/file_content')
        self.file_path = file_path
        self.file_name = file_name if file_path is None else _base_name(file_path)
        self.memory_snapshot = memory_snapshot
        memory_snapshot.analyze_memory_snapshot(opt='memory_peak', allocation=allocation,
                                                action=action)
        self.ast_parser = ASTCodeParser(file_path, file_content, self.file_name)
        self.classes = self.ast_parser.get_classes()
        self.functions = self.ast_parser.get_functions()
        self.memory_events_df = self._process_memory_events()
        self._aggregate()

    def _aggregate(self) -> None:
        self.without_occurence_memory_event_aggregation = self._aggregate_without_occurrences()
        by_line = self._aggregate_memory_events(_BY_LINE)
        self.with_occurence_memory_event_aggregation_by_lines = by_line
        self.with_occurence_memory_event_aggregation_by_class_and_function = \
            self._aggregate_memory_events(['class_names', 'function_names'])
        self.with_occurence_memory_event_aggregation_by_class = \
            self._aggregate_memory_events(['class_names'])
        self.with_occurence_memory_event_aggregation_per_stack_trace = \
            self._aggregate_memory_events(['stack_trace', 'line_numbers', 'class_names',
                                           'function_names'], sort_by_column='occurrences')
        # Of the joined names, the innermost.
        first = {key: [text.split(',')[0] for text in by_line[key]] for key in _BY_LINE[1:]}
        self.simplified_with_occurence_memory_event_aggregation_by_lines = by_line[
            ['line_content', 'occurrences', 'total_memory_utilization_gb']].assign(**first)

    # ---- rows ----

    def _rows(self) -> Iterator[List[Any]]:
        for event in self.memory_snapshot.call_stack_hash_set.values():
            stack = [_fields(frame) for frame in event.call_stack]
            text = '\n'.join(f'{name}, {file}:{line}' for name, file, line in stack)
            lines = [line for _, file, line in stack if _base_name(file) == self.file_name]
            contexts = [one for one in map(self.ast_parser.get_context_for_line, lines) if one]
            if not lines:
                yield [None, None, None, None, text, event.mem_size]
            elif contexts:
                yield [','.join(map(str, lines)), contexts[0].line_content,
                       ','.join(one.class_name or '_' for one in contexts),
                       ','.join(one.function_name or '_' for one in contexts), text, event.mem_size]

    def _process_memory_events(self) -> 'pandas.DataFrame':
        """A row for each group: without lines if none of its frames is in the file."""
        return pandas.DataFrame(list(self._rows()), columns=_COLUMNS)

    def _aggregate_memory_events(self, groupby_columns: List[str],
                                 sort_by_column: str = 'total_memory_utilization_gb',
                                 ascending: bool = False) -> 'pandas.DataFrame':
        """Groups with lines, summed by these columns; sizes in GiB."""
        rows = self.memory_events_df.dropna(subset=groupby_columns)
        if 'line_content' not in groupby_columns:
            rows = rows.dropna(subset=['line_content'])
        sizes = rows.groupby(groupby_columns)['memory_utilization']
        table = pandas.DataFrame({'occurrences': sizes.count(),
                                  'total_memory_utilization_gb': sizes.sum() / _GIB})
        return table.reset_index().sort_values(by=sort_by_column, ascending=ascending)

    def _aggregate_without_occurrences(self) -> 'pandas.DataFrame':
        """Groups without lines, summed by stack; sizes in bytes."""
        rows = self.memory_events_df[self.memory_events_df[_KEYS].isnull().all(axis=1)]
        sizes = rows.groupby('stack_trace')['memory_utilization']
        table = pandas.DataFrame({'total_memory_utilization': sizes.sum(),
                                  'occurrences': sizes.count()})
        return table.reset_index().sort_values(by='total_memory_utilization', ascending=False)

    def _sum_memory_utilization(self, df: 'pandas.DataFrame', line_number: int) -> float:
        """Bytes of the rows whose innermost frame in the file is at a line."""
        number = str(line_number)
        is_there = [isinstance(text, str) and text.split(',')[0] == number
                    for text in df['line_numbers']]
        size: float = df[is_there]['memory_utilization'].sum()
        return size

    # ---- printing ----

    def display_parsed_model_info(self) -> None:
        """Print the outline of the file."""
        def lines(kind: str, span: Dict[str, Any]) -> str:
            return (f'{kind}: {span["name"]}, Start Line: {span["start_line"]}, '
                    f'End Line: {span["end_line"]}')

        print('Classes and their line ranges:')
        for found in self.classes.values():
            print(lines('Class', found))
            for function in found['functions'].values():
                print('  ' + lines('Function', function))
        print('\nFunctions outside of classes and their line ranges:')
        for found in self.functions.values():
            print(lines('Function', found))

    def get_printable_dataframes(self, dfs: List['pandas.DataFrame'], titles: Optional[List[str]],
                                 max_rows: int = 100) -> str:
        """Tables, each under its title."""
        parts = []
        for number, df in enumerate(dfs):
            title = f'DataFrame {number + 1}' if titles is None else titles[number]
            parts.append(f'\n{title}\n{"=" * len(title)}\n{_psql(df.head(max_rows))}\n\n')
        return ''.join(parts)

    def get_printable_classification_info(self, specific_dfs: List['pandas.DataFrame'],
                                          display_titles: List[str], verbose: bool = False) -> str:
        """The given tables, or with `verbose` all."""
        if not verbose:
            return self.get_printable_dataframes(specific_dfs, display_titles)
        prefix = 'with_occurence_memory_event_aggregation_'
        names = [prefix + 'by_lines', prefix + 'by_class_and_function', prefix + 'by_class',
                 prefix + 'per_stack_trace', 'without_occurence_memory_event_aggregation']
        titles = [prefix + 'per_line_content', *names[1:]]
        return self.get_printable_dataframes([getattr(self, name) for name in names], titles)

    def get_augmented_model_file_view(self) -> str:
        """The source, each line with its number and what it holds."""
        lines = []
        for number, line in enumerate(self.ast_parser.lines, 1):
            size = self._sum_memory_utilization(self.memory_events_df, number) / _GIB
            lines.append(f'{number:>5} {f"{size:.3f} GiB" if size > 0 else "":<15} | {line}\n')
        return ''.join(lines)

    def compare_with_occurence_memory_event_aggregation_by_lines(
            self, other_classifier: 'AbstractSyntaxAnalyzer') -> str:
        """Both tables by lines, joined, with the differences: this one's minus the other's."""
        sides = [one.with_occurence_memory_event_aggregation_by_lines
                 for one in (self, other_classifier)]
        both = pandas.merge(*sides, on=['line_content', 'line_numbers'], how='outer', suffixes=_SIDES)
        for column in ('occurrences', 'total_memory_utilization_gb'):
            for side in _SIDES:
                both[column + side] = both[column + side].fillna(0)
        for column in ('occurrences', 'total_memory_utilization_gb'):
            both[column + '_diff'] = both[column + _SIDES[0]] - both[column + _SIDES[1]]
        title = 'Comparison of with_occurence_memory_event_aggregation_by_lines dataframes'
        return f'{title}\n{"=" * 69}\n{_psql(both)}\n'


def _psql(df: 'pandas.DataFrame') -> str:
    text: str = tabulate(df.to_dict(orient='records'), headers='keys', tablefmt='psql')
    return text
