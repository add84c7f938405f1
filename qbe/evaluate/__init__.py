"""Evaluation: measures, the protocols of test collections, significance, published figures, reports.

`qbe.evaluate.run.Run` evaluates and compares rankings in memory; ``qbe evaluate`` makes a report of files
(`qbe.evaluate.report.build_report`).
"""
