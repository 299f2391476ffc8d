"""Reports: tables, figures and pages made from a manifest and, internally, an evaluation."""
