"""Services that only Meta has: what would have gone there is printed."""
import logging
import os


def create_paste(text: str) -> None:
    """There is no paste service: the text is printed."""
    logging.warning('There is no paste service here; the answer is printed.')
    print(text)


def get_jobname() -> str:
    """The job's name, where the environment has one."""
    return os.environ.get('JOB_NAME', '')


def get_upload_folder(jobname: str) -> str:
    """Where a job's reports would go."""
    return jobname


def get_upload_file_name(snapshot: str) -> str:
    """A report's name, of the snapshot it is about."""
    return os.path.splitext(os.path.basename(snapshot))[0]


async def upload_report(data: str, upload_folder: str = '', upload_name: str = '') -> None:
    """There is nowhere to upload to."""
    del data, upload_folder
    logging.warning('There is nowhere to upload %s to; the answer stays here.', upload_name)
