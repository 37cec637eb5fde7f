"""The circuit report: its data, and HTML, Markdown and figures made from them.

A report is a plain dict that follows `schema.json`; nothing here needs the model or torch.
"""

from imir_lens.report.document import Report
from imir_lens.report.validation import ReportError, validate
from imir_lens.report.verification_document import VerificationReport
from imir_lens.report.words import describe

__all__ = ["Report", "ReportError", "VerificationReport", "describe", "validate"]
